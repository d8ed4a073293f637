"""Appendix E.1 of the paper (Figure 12): Gaussian noise on embeddings and on images.

    python -m paper run noise --data DIR --seeds 1,2,3,4,5 --out OUT

The bottleneck, trained class-incrementally, a linear probe, trained on i.i.d. data, and nearest
class mean are tested on noisy inputs. Their losses tell apart what the encoder loses, which all
three share, and what the bottleneck adds. The paper reports no loss up to α = 0.1.

Noise has one of three units. On embeddings, α times their standard deviation over all entries. On
pixels, α on the original image in [0, 1]. On inputs, α on the resized image after normalisation
(one standard deviation of ImageNet's pixels is about 0.225, so α = 0.1 is 0.0225 on pixels in
[0, 1]). The last two need embeddings of noisy images, the first rows of the test set in its order,
one file per α, and are left out without them:

    dkvb embed --encoder resnet50 --data cifar10 --split test --noise 0.1 \\
        --out DIR/cifar10-resnet50-test-pixels-0.1.npz
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkvb.evaluation.grid import ClassifierSpec, DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import Series, add_series, make_axes, save_figure
from dkvb.evaluation.records import RunRecord, mean_and_std
from paper import models
from paper.analysis.robustness import add_noise, changed_codes
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.learned import accuracy, learn
from paper.tables import accuracy_by_alpha, group_by

TITLE = "Noise (appendix E.1, Figure 12)"


@dataclass(frozen=True)
class Config(models.Schedule):
    """The models, and the noise levels."""

    alphas: tuple[float, ...] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


PAPER = Config()
QUICK = Config(**models.SMALL)


UNITS = ("embeddings", "pixels", "inputs")
PIXEL_STD = 0.225  # of ImageNet's pixels in [0, 1], mean over channels


def make_jobs(setup: Setup) -> list[Job]:
    """Return each model and seed, tested at all noise levels."""
    data = DeviceData(setup.load_data(), setup.device)
    config = setup.config
    files = {
        unit: [a for a in config.alphas if setup.source.has("cifar10", _split(unit, a))]
        for unit in UNITS[1:]
    }
    specs = (
        (models.bottleneck(config), "class-incremental"),
        # Fewer steps with a larger rate, whose product is the paper's: the probe only has to be
        # trained.
        (
            models.linear(
                config,
                learning_rate=config.baseline_rate * max(1, config.epochs // 20),
                epochs=min(20, config.epochs),
            ),
            "iid",
        ),
        (ClassifierSpec("prototypes", "prototypes", {}), "iid"),
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
                **files,
            },
            partial(_measure, setup, data, spec, order, seed, files),
        )
        for seed in setup.seeds
        for spec, order in specs
    ]


def _split(unit: str, alpha: float) -> str:
    return f"test-{unit}-{alpha:g}"


def _measure(
    setup: Setup,
    data: DeviceData,
    spec: ClassifierSpec,
    order: str,
    seed: int,
    files: dict[str, list[float]],
) -> Measurement:
    model = learn(setup, data, spec, order, seed)
    classifier = model.classifier
    x, x_test = (torch.as_tensor(rows) for rows, _ in data.inputs_for(spec))
    unit = float(x.std())
    before = classifier.batch(x_test).codes if hasattr(classifier, "batch") else None

    def point(alpha: float, rows: torch.Tensor) -> dict[str, float]:
        y = model.y_test[: len(rows)]
        if before is None:
            return {"alpha": alpha, "accuracy": accuracy(classifier, rows.cpu().numpy(), y)}
        batch = classifier.batch(rows)
        moved = float(changed_codes(before[: len(rows)], batch.codes).double().mean())
        share = accuracy(classifier, batch, y)
        return {"alpha": alpha, "accuracy": share, "codes_changed": round(moved, 6)}

    points = {
        "embeddings": [
            point(alpha, add_noise(x_test, alpha, unit=unit, seed=seed))
            for alpha in setup.config.alphas
        ]
    }
    for where, alphas in files.items():
        noisy = {a: setup.source.rows("cifar10", _split(where, a)) for a in alphas}
        for alpha, (rows, y) in noisy.items():
            if not np.array_equal(y, model.y_test[: len(rows)]):
                raise ValueError(
                    f"{_split(where, alpha)}: expected the first rows of the test set, in its "
                    "order; got other labels; embed the test set with --noise"
                )
        n = min((len(rows) for rows, _ in noisy.values()), default=0)
        clean = [point(0.0, x_test[:n])] if n else []  # on the same rows
        points[where] = clean + [point(a, torch.from_numpy(x[:n])) for a, (x, _) in noisy.items()]
    return Measurement(
        {"final_accuracy": points["embeddings"][0]["accuracy"], "unit": unit}, points
    )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the accuracy at each noise level."""
    rows = {}
    for name, group in group_by(records, lambda r: r.classifier).items():
        for where in UNITS:
            by = accuracy_by_alpha(group, where)
            if by:
                rows[f"{name}, {where}"] = {f"α {a:g}": mean_and_std(v) for a, v in by.items()}
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the noise level, on pixels and on embeddings."""
    shown = [w for w in reversed(UNITS) if any(r.extra.get(w) for r in records)]
    figure, axes = make_axes(len(shown), width=5.5 * len(shown) + 2)
    for ax, where in zip(axes, shown, strict=True):
        lines = [
            Series.from_values(name, accuracy_by_alpha(group, where))
            for name, group in group_by(records, lambda r: r.classifier).items()
        ]
        add_series(ax, lines, log=True)
        ax.set(title=f"noise on {where}", xlabel="α", ylabel="accuracy (%)", ylim=(0, 100))
        ax.legend(frameon=False)
    figure.suptitle(title)
    return save_figure(figure, path)
