"""Figure 4d of the paper: the data that keys are fitted to.

    dkvb reproduce key-data --data DIR --seeds 1,2,3,4,5 --out OUT

The paper: robust to the choice; the oracle, CIFAR-10 itself without labels, is slightly better.
CIFAR-10 and CIFAR-100 are needed; STL-10 and ImageNet are used where DIR has their train files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.benchmark.grid import ORDERS
from dkvb.benchmark.paper import _models, _sweep
from dkvb.benchmark.paper._experiment import Setup
from dkvb.benchmark.paper._tables import finals, grouped, order_of
from dkvb.benchmark.plots import draw_bars
from dkvb.benchmark.records import Job, RunRecord, spread

TITLE = "Data that keys are fitted to (Figure 4d)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the data sets to fit keys to, the oracle first."""

    key_data: tuple[str, ...] = ("cifar10", "cifar100", "stl10", "imagenet")
    orders: tuple[str, ...] = ORDERS


PAPER = Config()
QUICK = Config(**_models.SMALL)


def jobs(setup: Setup) -> list[Job]:
    """The base model with each set of keys, class-incremental and iid."""
    setup.source.require("cifar10", "cifar100")
    spec = _models.bottleneck(setup.config)
    here = [name for name in setup.config.key_data if setup.source.has(name, "train")]
    return [
        job
        for name in here
        for job in setup.stream_jobs(setup.data("cifar10", keys=name), [spec], setup.config.orders)
    ]


def key_set(record: RunRecord) -> str:
    """What the keys of a record were fitted to."""
    return str(record.config["data"]["keys"])


def table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Final accuracy for each set of keys."""
    return _sweep.table(records, key_set)


def draw(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Final accuracy for each set of keys."""
    bars = {
        name: {order: spread(finals(same)) for order, same in grouped(own, order_of).items()}
        for name, own in grouped(records, key_set).items()
    }
    return draw_bars(bars, path, title, "final accuracy (%)")
