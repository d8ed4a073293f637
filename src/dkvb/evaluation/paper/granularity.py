"""Appendix D.1 of the paper (Figure 6): the number of classes per task.

    dkvb reproduce granularity --data DIR --seeds 1,2,3,4,5 --out OUT

Ten tasks of one class, five of two, two of five. The paper reports equal final accuracies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.jobs import Job
from dkvb.evaluation.paper import _models
from dkvb.evaluation.paper.experiment import Setup
from dkvb.evaluation.paper.tables import final, group_by, metric
from dkvb.evaluation.plots import plot_accuracy
from dkvb.evaluation.records import RunRecord

TITLE = "Classes per task (appendix D.1, Figure 6)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the numbers of classes per task."""

    classes_per_task: tuple[int, ...] = (1, 2, 5)


PAPER = Config()
QUICK = Config(**_models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the base model on streams with tasks of different sizes, and on i.i.d. data."""
    data, spec = setup.load_data(), _models.bottleneck(setup.config)
    streams = [
        job
        for size in setup.config.classes_per_task
        for job in setup.make_stream_jobs(data, [spec], classes_per_task=size)
    ]
    return streams + setup.make_stream_jobs(data, [spec], ["iid"])


def tasks(record: RunRecord) -> str:
    """Return the tasks of a record, such as "5 tasks of 2"."""
    if len(record.tasks) == 1:
        return "iid"
    return f"{len(record.tasks)} tasks of {len(record.tasks[0])}"


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each stream."""
    return {
        name: {"final accuracy": final(group), "forgetting": metric(group, "forgetting", 100)}
        for name, group in group_by(records, tasks).items()
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the streams."""
    return plot_accuracy(records, path, title)
