"""Appendix D.1 of the paper: how many classes a stage has.

    dkvb reproduce granularity --data DIR --seeds 1,2,3,4,5 --out OUT

Ten stages of one class, five of two, two of five. The paper: the same accuracy at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.benchmark.paper import _models
from dkvb.benchmark.paper._experiment import Setup
from dkvb.benchmark.paper._tables import final, grouped, metric
from dkvb.benchmark.plots import accuracy_curves
from dkvb.benchmark.records import Job, RunRecord

TITLE = "Classes a stage (appendix D.1)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and how many classes come at a time."""

    classes_per_stage: tuple[int, ...] = (1, 2, 5)


PAPER = Config()
QUICK = Config(**_models.SMALL)


def jobs(setup: Setup) -> list[Job]:
    """The base model on streams of different stages, and iid."""
    data, spec = setup.data(), _models.bottleneck(setup.config)
    streams = [
        job
        for size in setup.config.classes_per_stage
        for job in setup.stream_jobs(data, [spec], classes_per_stage=size)
    ]
    return streams + setup.stream_jobs(data, [spec], ["iid"])


def stages(record: RunRecord) -> str:
    """Such as `5 stages of 2`."""
    if len(record.stages) == 1:
        return "iid"
    return f"{len(record.stages)} stages of {len(record.stages[0])}"


def table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Final accuracy for each stream."""
    return {
        name: {"final accuracy": final(own), "forgetting": metric(own, "forgetting", 100)}
        for name, own in grouped(records, stages).items()
    }


def draw(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Accuracy over the streams."""
    return accuracy_curves(records, path, title)
