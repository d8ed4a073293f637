"""Appendix D.2 of the paper: the FlyModel in one pass and over many epochs.

    dkvb reproduce fly --data DIR --seeds 1,2,3,4,5 --out OUT

One epoch learns well; more epochs saturate its weights, and classes become alike. The paper
reports a very low accuracy after 2,000 epochs per task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.benchmark.grid import ClassifierSpec
from dkvb.benchmark.jobs import Job
from dkvb.benchmark.paper import _models, _sweep
from dkvb.benchmark.paper.experiment import Setup
from dkvb.benchmark.records import RunRecord

TITLE = "FlyModel over epochs (appendix D.2)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """Numbers of epochs per task; other parameters are the defaults, which are the paper's."""

    fly_epochs: tuple[int, ...] = (1, 10, 100, 2000)


PAPER = Config()
# With ten times fewer samples it saturates ten times later.
QUICK = Config(**_models.SMALL, fly_epochs=(1, 100, 2000, 20_000))


def make_jobs(setup: Setup) -> list[Job]:
    """Return the FlyModel with each number of epochs, class-incremental."""
    specs = [
        ClassifierSpec(f"fly:epochs={epochs}", "fly", {"epochs": epochs})
        for epochs in setup.config.fly_epochs
    ]
    return setup.make_stream_jobs(setup.load_data(), specs)


def get_epochs(record: RunRecord) -> int:
    """Return the epochs per task of a record."""
    return int(record.config["settings"]["epochs"])


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy for each number of epochs."""
    return _sweep.make_table(records, get_epochs)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracy over epochs."""
    return _sweep.plot(records, path, title, value_of=get_epochs, label="epochs per task", log=True)
