"""Theorem 1 of the paper and its appendix B: estimates of the terms of the bound.

    python -m paper run theorem --data DIR --seeds 1,2,3 --out OUT

For the bottleneck, a linear probe and an MLP, with the error rate as the loss (M = 1): the training
loss; the shift term under Gaussian perturbations g_ε, and the same for samples whose codes do not
change, where by the theorem it is zero for the bottleneck; and the complexity term of the linear
probe and the MLP, with the cells of one codebook as the theorem's keys. Also the growth of the
constant with codebooks, and perturbations in the null space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkvb.evaluation.grid import ClassifierSpec, DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import Series, add_series, make_axes, save_figure
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.analysis import theorem
from paper.analysis.robustness import add_noise, changed_codes
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.learned import Learned, fit_shared_keys, learn
from paper.tables import group_by, metric

TITLE = "The terms of Theorem 1"


@dataclass(frozen=True)
class Config(models.Schedule):
    """Models trained on i.i.d. data, and the settings of the estimates."""

    epochs: int = 100
    baseline_rate: float = 0.02  # the epochs are twenty times fewer than the paper's
    rows: int = 5000  # training samples for the shift term
    alphas: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    draws: int = 3  # of noise and of signs
    cells: int = 64  # sampled cells of one codebook, for the complexity term
    all_rows: int = 2000  # samples for the complexity without cells
    ascent_steps: int = 300
    radius: float = 10.0  # largest norm of weights per layer of the function class
    books: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    null_books: int = 16


PAPER = Config()
QUICK = Config(
    **models.SMALL,
    rows=1000,
    draws=2,
    cells=16,
    all_rows=500,
    books=(1, 2, 4, 8, 16, 32, 64),
)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the terms of each model, and the measurements of keys, per seed."""
    config = setup.config
    data = DeviceData(setup.load_data(), setup.device)
    specs = [models.bottleneck(config), models.linear(config), models.mlp(config)]
    what = {"measure": "theorem", "config": _plain(config)}
    terms = [
        make_measurement_job(
            setup,
            data,
            spec.text,
            what | {"seed": seed, "settings": spec.settings},
            partial(_terms, setup, data, spec, seed),
        )
        for seed in setup.seeds
        for spec in specs
    ]
    keys = [
        make_measurement_job(
            setup, data, "keys", what | {"seed": seed}, partial(_about_keys, setup, data, seed)
        )
        for seed in setup.seeds
    ]
    return terms + keys


def _plain(config: Config) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(config).items()}


def _terms(setup: Setup, data: DeviceData, spec: ClassifierSpec, seed: int) -> Measurement:
    config = setup.config
    model = learn(setup, data, spec, "iid", seed)
    keyed = fit_shared_keys(setup, data, seed)
    chosen = np.random.default_rng(seed).permutation(len(model.y_train))[: config.rows]
    x = torch.as_tensor(data.inputs_for(spec)[0][0])[chosen]
    y = model.y_train[chosen]
    unit = float(x.std())
    clean = _wrong(model, x, y)
    before = keyed.codes(x)
    shift = []
    for alpha in config.alphas:
        gains, stays, kept = [], [], []
        for draw in range(config.draws):
            moved = add_noise(x, alpha, unit=unit, seed=1000 * seed + draw)
            gain = _wrong(model, moved, y) - clean  # (n,)
            stay = ~changed_codes(before, keyed.codes(moved)).any(dim=1).cpu().numpy()
            gains.append(gain.mean())
            kept.append(stay.mean())
            if stay.any():
                stays.append(np.abs(gain[stay]).mean())
        shift.append(
            {
                "alpha": alpha,
                "shift": round(float(np.mean(gains)), 6),
                "unchanged_rows": round(float(np.mean(kept)), 6),
                "unchanged_shift": round(float(np.mean(stays)), 6) if stays else None,
            }
        )
    x_test = torch.as_tensor(data.inputs_for(spec)[1][0])
    terms = {
        "training_loss": float(clean.mean()),
        "test_loss": float(_wrong(model, x_test, model.y_test).mean()),
        "shift": shift[-1]["shift"],
        "unchanged_shift": max(
            (p["unchanged_shift"] for p in shift if p["unchanged_shift"] is not None), default=None
        ),
        # Of the bottleneck, by the theorem: nothing is fitted within a cell.
        "complexity": 0.0,
        "complexity_of_all_rows": 0.0,
    }
    if spec.name != "bottleneck":
        terms |= _complexity(setup, data, model, spec, keyed, seed)
    return Measurement(terms, {"shift": shift})


def _wrong(model: Learned, x: Tensor, y: Any) -> Any:
    """Return 1 where the prediction is wrong (n,)."""
    keyed = hasattr(model.classifier, "batch")
    answers = model.classifier.predict(model.classifier.batch(x) if keyed else x.cpu().numpy())
    return (answers != y).astype(np.float64)


def _complexity(
    setup: Setup, data: DeviceData, model: Learned, spec: ClassifierSpec, keys: Any, seed: int
) -> dict[str, float]:
    """Return 2/n Σ_{y,k} R_{y,k} from cells of the first codebook, and 2/n R without cells."""
    config, device = setup.config, torch.device(setup.device)
    rng = np.random.default_rng(seed)
    X, y = model.train, model.y_train
    few = rng.permutation(len(y))[: max(20_000, config.all_rows)]
    codes = keys.codes(X[few])[:, :1].cpu()
    cell = theorem.number_cells(codes, torch.from_numpy(y[few])).numpy()
    counts = np.bincount(cell)
    picked = rng.permutation(len(counts))[: config.cells]
    groups = [few[cell == number] for number in picked]
    shared = {
        "n_classes": int(y.max()) + 1,
        "radius": config.radius,
        "steps": config.ascent_steps,
        "hidden": spec.settings.get("hidden"),
    }

    def sought(rows: Sequence[Any]) -> float:
        x, labels, mask = _side_by_side(X, y, rows, device)
        suprema = [
            theorem.estimate_rademacher(x, labels, mask, **shared, seed=1000 * seed + draw)
            for draw in range(config.draws)
        ]
        total = sum(float(values.sum()) for values in suprema) / config.draws
        return float(2 * total / sum(map(len, rows)))

    return {
        "complexity": sought(groups),
        "complexity_of_all_rows": sought([few[: config.all_rows]]),
    }


def _side_by_side(X: Any, y: Any, rows: Sequence[Any], device: torch.device) -> tuple[Tensor, ...]:
    """Return groups padded to the longest: x (J, r, m), labels (J, r), mask (J, r)."""
    longest = max(map(len, rows))
    indices = torch.zeros((len(rows), longest), dtype=torch.int64)
    mask = torch.zeros((len(rows), longest))
    for j, group in enumerate(rows):
        indices[j, : len(group)], mask[j, : len(group)] = torch.from_numpy(group), 1.0
    x = torch.from_numpy(np.asarray(X)[indices.numpy()]).to(device)
    return x, torch.from_numpy(y)[indices].to(device), mask.to(device)


def _about_keys(setup: Setup, data: DeviceData, seed: int) -> Measurement:
    """Measure the constant by codebooks, and perturbations in the projections' null space."""
    config, keys = setup.config, fit_shared_keys(setup, data, seed)
    (x, y), _ = data.inputs_for(models.bottleneck(config))
    codes = keys.codes(x)
    columns = torch.from_numpy(y).to(codes.device)
    n_classes = int(y.max()) + 1
    growth = []
    for books in (b for b in config.books if b <= keys.n_codebooks):
        group = theorem.estimate_constant(codes[:, :books], columns, keys.n_pairs, n_classes)
        growth.append({"codebooks": books, **group._asdict()})
    few = torch.as_tensor(x)[: config.rows]
    books = config.null_books
    assert keys.projection.matrices is not None
    null = theorem.find_common_null_space(keys.projection.matrices[:books])  # (m, q)
    noise = (add_noise(few, 1.0, unit=float(few.std()), seed=seed) - few).double()
    inside = noise @ null @ null.T if null.shape[1] else torch.zeros_like(noise)
    size = noise.norm(dim=1, keepdim=True)
    inside = inside * (size / inside.norm(dim=1, keepdim=True).clamp(min=1e-12))
    before = codes[: config.rows, :books]
    moved = [keys.codes((few + v).float())[:, :books] for v in (noise, inside)]
    shares = [float(changed_codes(before, after).double().mean()) for after in moved]
    metrics = {
        "null_dimension": null.shape[1],
        "null_dimension_of_all": max(0, keys.width - keys.n_codebooks * keys.key_dim),
        "codes_changed_by_any": shares[0],
        "codes_changed_from_null_space": shares[1],
    }
    return Measurement(metrics, {"growth": growth})


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return one row per model, and one on the null space."""
    rows: dict[str, dict[str, Any]] = {}
    for name, group in group_by(records, lambda r: r.classifier).items():
        if name == "keys":
            rows["null space"] = {
                "codes changed by any noise (%)": metric(group, "codes_changed_by_any", 100),
                "by as much of the null space (%)": metric(
                    group, "codes_changed_from_null_space", 100
                ),
            }
        else:
            largest = group[0].extra["shift"][-1]["alpha"]
            rows[name] = {
                "training loss": metric(group, "training_loss"),
                "test loss": metric(group, "test_loss"),
                f"shift, α {largest:g}": metric(group, "shift"),
                "shift where no code changed": metric(group, "unchanged_shift"),
                "complexity": metric(group, "complexity"),
                "of all rows": metric(group, "complexity_of_all_rows"),
            }
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the shift term over the noise level, and the constant over codebooks."""
    figure, (left, right) = make_axes(2, width=11)
    lines = []
    for name, group in group_by(records, lambda r: r.classifier).items():
        if name != "keys":
            by: dict[float, list[float]] = {}
            for record in group:
                for point in record.extra["shift"]:
                    by.setdefault(point["alpha"], []).append(point["shift"])
            lines.append(Series.from_values(name, by))
    add_series(left, lines, log=True)
    left.set(title="shift term", xlabel="α", ylabel="change of the loss")
    left.legend(frameon=False)
    terms: dict[float, list[float]] = {}
    for record in records:
        for point in record.extra.get("growth", ()):
            terms.setdefault(point["codebooks"], []).append(point["term"])
    add_series(right, [Series.from_values("c √(2 ln(2e/δ) / n)", terms)], log=True)
    right.set(title="the constant's term", xlabel="codebooks")
    right.legend(frameon=False)
    figure.suptitle(title)
    return save_figure(figure, path)
