"""Appendix E.1 of the paper: Gaussian noise on embeddings and on pixels.

    dkvb reproduce noise --data DIR --seeds 1,2,3 --out OUT

The bottleneck, trained class-incrementally, and a linear probe, trained on i.i.d. data, are tested
on noisy embeddings. The paper reports no loss up to α = 0.1. Noise on embeddings has α times their
standard deviation over all entries. Noise on pixels needs embeddings of noisy images, one file per
α, and is left out without them:

    dkvb embed --encoder resnet50 --data cifar10 --split test --noise 0.1 \\
        --out DIR/cifar10-resnet50-test-pixels-0.1.npz
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dkvb.benchmark.analysis.robustness import add_noise, changed_codes
from dkvb.benchmark.grid import ClassifierSpec, DeviceData
from dkvb.benchmark.jobs import Job
from dkvb.benchmark.paper import _models
from dkvb.benchmark.paper._learned import accuracy, learn
from dkvb.benchmark.paper.experiment import Measurement, Setup, make_measurement_job
from dkvb.benchmark.paper.tables import group_by
from dkvb.benchmark.plots import Series, add_series, make_axes, save_figure
from dkvb.benchmark.records import RunRecord, mean_and_std

TITLE = "Noise (appendix E.1)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The models, and the noise levels."""

    alphas: tuple[float, ...] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


# Learning rate × epochs of the linear probe is the paper's.
PAPER = Config()
QUICK = Config(**_models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return each model and seed, tested at all noise levels."""
    data = DeviceData(setup.load_data(), setup.device)
    config = setup.config
    pixels = [a for a in config.alphas if setup.source.has("cifar10", _split(a))]
    models = (
        (_models.bottleneck(config), "class-incremental"),
        # Fewer steps with a larger rate: the probe only has to be trained.
        (
            _models.linear(
                config,
                learning_rate=config.baseline_rate * max(1, config.epochs // 20),
                epochs=min(20, config.epochs),
            ),
            "iid",
        ),
    )
    return [
        make_measurement_job(
            setup,
            data,
            spec.text,
            {
                "measure": "noise",
                "seed": seed,
                "order": order,
                "settings": spec.settings,
                "epochs": config.epochs,
                "alphas": list(config.alphas),
                "pixels": pixels,
            },
            partial(_measure, setup, data, spec, order, seed, pixels),
        )
        for seed in setup.seeds
        for spec, order in models
    ]


def _split(alpha: float) -> str:
    return f"test-pixels-{alpha:g}"


def _measure(
    setup: Setup, data: DeviceData, spec: ClassifierSpec, order: str, seed: int, pixels: list[float]
) -> Measurement:
    model = learn(setup, data, spec, order, seed)
    classifier = model.classifier
    x, x_test = (torch.as_tensor(rows) for rows, _ in data.inputs_for(spec))
    unit = float(x.std())
    before = classifier.batch(x_test).codes if hasattr(classifier, "batch") else None

    def point(alpha: float, rows: torch.Tensor) -> dict[str, float]:
        if before is None:
            found = accuracy(classifier, rows.cpu().numpy(), model.y_test)
            return {"alpha": alpha, "accuracy": found}
        batch = classifier.batch(rows)
        moved = float(changed_codes(before, batch.codes).double().mean())
        found = accuracy(classifier, batch, model.y_test)
        return {"alpha": alpha, "accuracy": found, "codes_changed": round(moved, 6)}

    embeddings = [
        point(alpha, add_noise(x_test, alpha, unit=unit, seed=seed))
        for alpha in setup.config.alphas
    ]
    images = [
        point(alpha, torch.from_numpy(setup.source.rows("cifar10", _split(alpha))[0]))
        for alpha in pixels
    ]
    return Measurement(
        {"final_accuracy": embeddings[0]["accuracy"], "unit": unit},
        {"embeddings": embeddings, "pixels": images},
    )


def _by_alpha(records: Sequence[RunRecord], where: str) -> dict[float, list[float]]:
    by: dict[float, list[float]] = {}
    for record in records:
        for point in record.extra[where]:
            by.setdefault(point["alpha"], []).append(100 * point["accuracy"])
    return by


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the accuracy at each noise level."""
    rows = {}
    for name, group in group_by(records, lambda r: r.classifier).items():
        for where in ("embeddings", "pixels"):
            by = _by_alpha(group, where)
            if by:
                rows[f"{name}, {where}"] = {f"α {a:g}": mean_and_std(v) for a, v in by.items()}
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the noise level, on pixels and on embeddings."""
    shown = [w for w in ("pixels", "embeddings") if any(r.extra[w] for r in records)]
    figure, axes = make_axes(len(shown), width=5.5 * len(shown) + 2)
    for ax, where in zip(axes, shown, strict=True):
        lines = [
            Series.from_values(name, _by_alpha(group, where))
            for name, group in group_by(records, lambda r: r.classifier).items()
        ]
        add_series(ax, lines, log=True)
        ax.set(title=f"noise on {where}", xlabel="α", ylabel="accuracy (%)", ylim=(0, 100))
        ax.legend(frameon=False)
    figure.suptitle(title)
    return save_figure(figure, path)
