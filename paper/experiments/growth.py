"""Section 6 of the paper: key-value pairs added when the distribution shifts.

    python -m paper run growth --data DIR --seeds 1,2,3,4,5 --out OUT

The paper suggests, without numbers, to add pairs where the distance from keys shows a shift. Here
keys are fitted to the unlabelled training rows of half of CIFAR-10's classes. These classes are
learned first. Then the other half arrives. Compared are keys that stay as they are, keys that
`grow_keys` adds before the second half is learned, and keys fitted to all rows from the start. The
seed decides which classes come first, as in the other experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dkvb.evaluation import streams
from dkvb.evaluation.grid import DeviceData, make_from_spec
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_bars
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.tables import group_by, metric

TAKES_KEYS = False  # keys are fitted to the stream's own rows
TITLE = "Pairs added when the distribution shifts (section 6)"
VARIANTS = ("fixed", "grown", "all rows")


@dataclass(frozen=True)
class Config(models.Schedule):
    """The base model with fewer pairs and epochs, and the number of new pairs."""

    n_pairs: int = 1024
    epochs: int = 100
    learning_rate: float = 6.0  # rate × epochs is the paper's
    n_new: int = 512  # per codebook
    above: float = 0.9  # novelty of the rows that new keys are fitted to


PAPER = Config()
QUICK = Config(**models.SMALL, n_new=64)


def make_jobs(setup: Setup) -> list[Job]:
    """Return every variant of keys, per seed."""
    config = setup.config
    data = DeviceData(setup.load_data("cifar10", keys="cifar10"), setup.device)
    return [
        make_measurement_job(
            setup,
            data,
            f"keys {variant}",
            {
                "measure": "growth",
                "variant": variant,
                "seed": seed,
                "settings": models.bottleneck(config).settings,
                "epochs": config.epochs,
                "growth": [config.n_new, config.above],
            },
            partial(_measure, setup, data, variant, seed),
        )
        for seed in setup.seeds
        for variant in VARIANTS
    ]


def _measure(setup: Setup, data: DeviceData, variant: str, seed: int) -> Measurement:
    config, spec = setup.config, models.bottleneck(setup.config)
    (x, y), (x_test, y_test) = data.inputs_for(spec)
    classes = np.unique(y)
    first, second = streams.class_incremental(y, (len(classes) + 1) // 2, seed)
    classifier = make_from_spec(spec, seed=seed, device=setup.device, epochs=config.epochs)
    key_rows = x if variant == "all rows" else x[first.indices]
    classifier = classifier.set_params(keys=classifier.fit_keys(key_rows))
    classifier.partial_fit(classifier.batch(x[first.indices]), y[first.indices], classes=classes)
    arriving = classifier.batch(x[second.indices])
    novelty = float(np.mean(classifier.novelty(arriving) > config.above))
    if variant == "grown":
        classifier.grow_keys(arriving, n_new=config.n_new, above=config.above)
    classifier.partial_fit(classifier.batch(x[second.indices]), y[second.indices])
    right = classifier.predict(classifier.batch(x_test)) == y_test
    is_first = np.isin(y_test, first.classes)
    return Measurement(
        {
            "final_accuracy": float(right.mean()),
            "first_half": float(right[is_first].mean()),
            "second_half": float(right[~is_first].mean()),
            "novel_rows": novelty,
            "pairs": float(classifier.keys_.n_pairs),
        }
    )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the accuracy after both halves, on all classes and on each half."""
    return {
        name: {
            "final accuracy": metric(group, "final_accuracy", 100),
            "first half": metric(group, "first_half", 100),
            "second half": metric(group, "second_half", 100),
            "rows of high novelty (%)": metric(group, "novel_rows", 100),
            "pairs per codebook": metric(group, "pairs"),
        }
        for name, group in group_by(records, lambda r: r.classifier).items()
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the accuracy on each half."""
    table = make_table(records)
    shown = ("final accuracy", "first half", "second half")
    bars = {name: {column: row[column] for column in shown} for name, row in table.items()}
    return plot_bars(bars, path, title, "accuracy (%)")
