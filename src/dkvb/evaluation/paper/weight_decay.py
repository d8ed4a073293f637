"""Appendix D.3 of the paper (Figures 8 and 9): linear probe and MLP with weight decay.

    dkvb reproduce weight-decay --data DIR --seeds 1,2,3 --out OUT

The paper calls this ridge regularisation, and reports that it does not prevent forgetting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.jobs import Job
from dkvb.evaluation.paper import _models, cifar10
from dkvb.evaluation.paper.experiment import Setup
from dkvb.evaluation.plots import plot_accuracy
from dkvb.evaluation.records import RunRecord

TITLE = "Weight decay on linear probe and MLP (appendix D.3, Figures 8 and 9)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The models, and the paper's weight decays."""

    decays: tuple[float, ...] = (1e-2, 1e-4, 1e-6)


PAPER = Config(evaluate_every=500)
QUICK = Config(**_models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return both models with each decay, class-incremental."""
    specs = [
        make(setup.config, f"{name}:weight_decay={decay:g}", weight_decay=decay)
        for name, make in (("linear", _models.linear), ("mlp", _models.mlp))
        for decay in setup.config.decays
    ]
    return setup.make_stream_jobs(setup.load_data(), specs)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return final accuracy and forgetting of each."""
    return cifar10.stream_table("weight-decay", records)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the stream."""
    return plot_accuracy(records, path, title)
