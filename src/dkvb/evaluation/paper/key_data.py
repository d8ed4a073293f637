"""Figure 5d of the paper: the data that keys are fitted to.

    dkvb reproduce key-data --data DIR --seeds 1,2,3,4,5 --out OUT

The paper reports little effect; the oracle, CIFAR-10 itself without labels, is slightly better.
CIFAR-10 and CIFAR-100 are required; STL-10 and ImageNet are used if DIR has their train files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.paper import _models, _sweep
from dkvb.evaluation.paper.encoders import key_epochs
from dkvb.evaluation.paper.experiment import Setup
from dkvb.evaluation.paper.tables import final_accuracies, get_order, group_by
from dkvb.evaluation.plots import plot_bars
from dkvb.evaluation.records import RunRecord, mean_and_std

TAKES_KEYS = False  # it compares data to fit keys to
TITLE = "Data that keys are fitted to (Figure 5d)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the data sets to fit keys to, the oracle first."""

    key_data: tuple[str, ...] = ("cifar10", "cifar100", "stl10", "imagenet")
    orders: tuple[str, ...] = ORDERS


PAPER = Config()
QUICK = Config(**_models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the base model with each set of keys, class-incremental and i.i.d."""
    setup.source.require("cifar10", "cifar100")
    epochs = setup.config.key_epochs
    here = [name for name in setup.config.key_data if setup.source.has(name, "train")]
    return [
        job
        for name in here
        for job in setup.make_stream_jobs(
            setup.load_data("cifar10", keys=name),
            [_models.bottleneck(setup.config, key_epochs=min(epochs, key_epochs(name)))],
            setup.config.orders,
        )
    ]


def key_set(record: RunRecord) -> str:
    """Return the data set that the keys of a record were fitted to."""
    return str(record.config["data"]["keys"])


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Final accuracy for each set of keys."""
    return _sweep.make_table(records, key_set)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Final accuracy for each set of keys."""
    bars = {
        name: {
            order: mean_and_std(final_accuracies(same))
            for order, same in group_by(group, get_order).items()
        }
        for name, group in group_by(records, key_set).items()
    }
    return plot_bars(bars, path, title, "final accuracy (%)")
