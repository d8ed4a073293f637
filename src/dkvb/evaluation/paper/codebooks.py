"""Figure 5c of the paper: codebooks.

    dkvb reproduce codebooks --data DIR --seeds 1,2,3,4,5 --out OUT

The base model with one parameter changed. The paper reports that more are better, and that
codebooks matter slightly more than pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.paper import _models, _sweep
from dkvb.evaluation.paper.experiment import Setup
from dkvb.evaluation.paper.tables import setting
from dkvb.evaluation.records import RunRecord

TITLE = "Number of codebooks (Figure 5c)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the values of the parameter."""

    codebooks: tuple[int, ...] = (16, 32, 64, 128, 256)
    orders: tuple[str, ...] = ORDERS


PAPER = Config()
QUICK = Config(**_models.SMALL, codebooks=(4, 16, 64))


def make_jobs(setup: Setup) -> list[Job]:
    """Return one bottleneck per value, class-incremental and i.i.d."""
    specs = [
        _models.bottleneck(setup.config, f"bottleneck:n_codebooks={value}", n_codebooks=value)
        for value in setup.config.codebooks
    ]
    return setup.make_stream_jobs(setup.load_data(), specs, setup.config.orders)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each value."""
    return _sweep.make_table(records, setting("n_codebooks"))


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracy over the values."""
    return _sweep.plot(
        records, path, title, value_of=setting("n_codebooks"), label="codebooks", log=True
    )
