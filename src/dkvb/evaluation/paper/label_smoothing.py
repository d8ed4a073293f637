"""Appendix C of the paper: label smoothing, which is reported to have no effect.

dkvb reproduce label-smoothing --data DIR --seeds 1,2,3,4,5 --out OUT
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.jobs import Job
from dkvb.evaluation.paper import _models, _sweep
from dkvb.evaluation.paper.experiment import Setup
from dkvb.evaluation.paper.tables import setting
from dkvb.evaluation.records import RunRecord

TITLE = "Label smoothing (appendix C)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the values of the parameter."""

    smoothings: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2)


PAPER = Config()
QUICK = Config(**_models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return one bottleneck per value, class-incremental."""
    specs = [
        _models.bottleneck(
            setup.config, f"bottleneck:label_smoothing={value}", label_smoothing=value
        )
        for value in setup.config.smoothings
    ]
    return setup.make_stream_jobs(setup.load_data(), specs)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each value."""
    return _sweep.make_table(records, setting("label_smoothing"))


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracy over the values."""
    value_of = setting("label_smoothing")
    return _sweep.plot(records, path, title, value_of=value_of, label="label smoothing")
