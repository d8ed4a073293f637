"""Appendix D.2 of the paper: the FlyModel in one pass and over many epochs.

    dkvb reproduce fly --data DIR --seeds 1,2,3,4,5 --out OUT

One pass learns well; repeated epochs saturate its weights, and what it knew is gone. The paper
shows 2,000 epochs a stage ending very low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.benchmark.grid import ClassifierSpec
from dkvb.benchmark.paper import _models, _sweep
from dkvb.benchmark.paper._experiment import Setup
from dkvb.benchmark.records import Job, RunRecord

TITLE = "FlyModel over epochs (appendix D.2)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """How many epochs a stage; the model's own settings are its defaults, the paper's."""

    fly_epochs: tuple[int, ...] = (1, 10, 100, 2000)


PAPER = Config()
# Ten times fewer rows saturate as slowly.
QUICK = Config(**_models.SMALL, fly_epochs=(1, 100, 2000, 20_000))


def jobs(setup: Setup) -> list[Job]:
    """The FlyModel with each number of epochs, class-incremental."""
    specs = [
        ClassifierSpec(f"fly:epochs={epochs}", "fly", {"epochs": epochs})
        for epochs in setup.config.fly_epochs
    ]
    return setup.stream_jobs(setup.data(), specs)


def epochs_of(record: RunRecord) -> int:
    """Epochs a stage."""
    return int(record.config["settings"]["epochs"])


def table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Final accuracy after each number of epochs."""
    return _sweep.table(records, epochs_of)


def draw(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Final accuracy over epochs."""
    return _sweep.draw(records, path, title, value_of=epochs_of, label="epochs a stage", log=True)
