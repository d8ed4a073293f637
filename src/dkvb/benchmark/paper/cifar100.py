"""Appendix D.4 of the paper: CIFAR-100 in fifty tasks of two classes, keys from CIFAR-10.

    dkvb reproduce cifar100 --data DIR --encoder resnet50 --seeds 1,2,3,4,5 --out OUT

The paper's final accuracies: ResNet50 54.7, CLIP 64; SDMLP 43. 500 epochs per task.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dkvb.benchmark.grid import ORDERS
from dkvb.benchmark.jobs import Job
from dkvb.benchmark.paper import _models, cifar10
from dkvb.benchmark.paper.experiment import Setup
from dkvb.benchmark.records import RunRecord

TITLE = "CIFAR-100, two classes at a time (appendix D.4)"
PAPER = _models.Schedule(epochs=500)
QUICK = _models.Schedule(**_models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the bottleneck, class-incremental and i.i.d."""
    data = setup.load_data("cifar100", keys="cifar10")
    return setup.make_stream_jobs(data, _models.with_both_keys(setup.config), ORDERS)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return final accuracies, with the paper's numbers."""
    return cifar10.stream_table("cifar100", records)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the stream."""
    return cifar10.plot(records, path, title)
