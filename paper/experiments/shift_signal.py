"""Section 6 of the paper: the distance from keys as a signal of distribution shift.

    python -m paper run shift-signal --data DIR --seeds 1,2,3,4,5 --out OUT

The paper suggests, without numbers, that the distance between heads and their closest keys tells
how far the distribution has shifted. Here keys are fitted to the unlabelled training rows of
CIFAR-10 or CIFAR-100. Test rows of CIFAR-10 are compared with test rows of CIFAR-100 and with noisy
ones: the area under the ROC curve (AUROC) of the distance of single rows, and the share of batches
for which `drift` reports a shift at p < 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from dkvb.bottleneck.novelty import compare, distance_from_keys
from dkvb.evaluation.grid import DeviceData, make_from_spec, set_shared_keys
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_bars
from dkvb.evaluation.records import RunRecord, mean_and_std
from paper import models
from paper.analysis.robustness import add_noise
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.tables import group_by, metric

TAKES_KEYS = False  # both data sets are used
TITLE = "Distance from keys as a signal of shift (section 6)"


@dataclass(frozen=True)
class Config(models.Schedule):
    """The base model's keys, noise levels, and batches for the test of drift."""

    key_data: tuple[str, ...] = ("cifar10", "cifar100")
    alphas: tuple[float, ...] = (0.1, 0.3, 1.0)
    batch_rows: int = 100
    batches: int = 50


PAPER = Config()
QUICK = Config(**models.SMALL, batches=5)


def make_jobs(setup: Setup) -> list[Job]:
    """Return one measurement per key data set and seed."""
    config, jobs = setup.config, []
    for keys in config.key_data:
        data = DeviceData(setup.load_data("cifar10", keys=keys), setup.device)
        pixels = [a for a in (0.01, 0.03, 0.1) if setup.source.has("cifar10", _split(a))]
        spec = models.bottleneck(config)
        what = {
            "measure": "shift-signal",
            "settings": spec.settings,
            "alphas": list(config.alphas),
            "pixels": pixels,
            "batches": [config.batches, config.batch_rows],
        }
        jobs += [
            make_measurement_job(
                setup,
                data,
                f"keys from {keys}",
                what | {"seed": seed},
                partial(_measure, setup, data, seed, pixels),
            )
            for seed in setup.seeds
        ]
    return jobs


def _split(alpha: float) -> str:
    return f"test-pixels-{alpha:g}"


def _measure(setup: Setup, data: DeviceData, seed: int, pixels: Sequence[float]) -> Measurement:
    config, spec = setup.config, models.bottleneck(setup.config)
    classifier = make_from_spec(spec, seed=seed, device=setup.device)
    classifier = set_shared_keys(classifier, data, seed)
    x_test = torch.as_tensor(data.inputs_for(spec)[1][0])
    unit = float(torch.as_tensor(data.inputs_for(spec)[0][0]).std())
    other = setup.source.rows("cifar100", "test")[0]
    shifted: dict[str, Any] = {"CIFAR-100": data.on_device(other)}
    for alpha in config.alphas:
        shifted[f"noise {alpha:g} on embeddings"] = add_noise(x_test, alpha, unit=unit, seed=seed)
    for alpha in pixels:
        rows = setup.source.rows("cifar10", _split(alpha))[0]
        shifted[f"noise {alpha:g} on pixels"] = data.on_device(rows)
    usual = distance_from_keys(classifier.batch(x_test))
    distances = {name: distance_from_keys(classifier.batch(x)) for name, x in shifted.items()}
    rng = np.random.default_rng(seed)

    def detected(rows: Any) -> float:
        """Return the share of batches that differ from a batch of CIFAR-10 at p < 0.05."""
        detections = []
        for _ in range(config.batches):
            # The two batches have no row in common, also where both are of CIFAR-10.
            drawn = rng.permutation(min(len(usual), len(rows)))[: 2 * config.batch_rows]
            one, two = np.array_split(drawn, 2)
            detections.append(compare(classifier.keys, rows[one], usual[two]).p_value < 0.05)
        return float(np.mean(detections))

    points: list[dict[str, Any]] = [
        {
            "shift": name,
            "auroc": round(_auroc(usual, distance), 6),
            "detected": detected(distance),
        }
        for name, distance in distances.items()
    ]
    metrics = {"auroc_cifar100": points[0]["auroc"], "false_alarms": detected(usual)}
    return Measurement(metrics, {"shifts": points})


def _auroc(usual: Any, shifted: Any) -> float:
    labels = np.r_[np.zeros(len(usual)), np.ones(len(shifted))]
    return float(roc_auc_score(labels, np.r_[usual, shifted]))


def _by_shift(records: Sequence[RunRecord], name: str) -> dict[str, list[float]]:
    by: dict[str, list[float]] = {}
    for record in records:
        for point in record.extra["shifts"]:
            by.setdefault(point["shift"], []).append(point[name])
    return by


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return AUROC and detected batches for each key data set and shift."""
    rows: dict[str, dict[str, Any]] = {}
    for name, group in group_by(records, lambda r: r.classifier).items():
        detected = _by_shift(group, "detected")
        for shift, values in _by_shift(group, "auroc").items():
            rows[f"{name}, {shift}"] = {
                "AUROC": mean_and_std(values),
                "batches detected (%)": mean_and_std(detected[shift], 100),
            }
        rows[f"{name}, no shift"] = {"batches detected (%)": metric(group, "false_alarms", 100)}
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the AUROC of each shift, one bar per key data set."""
    bars: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, group in group_by(records, lambda r: r.classifier).items():
        for shift, values in _by_shift(group, "auroc").items():
            bars.setdefault(shift, {})[name] = mean_and_std(values, 100)
    return plot_bars(bars, path, title, "AUROC (%)")
