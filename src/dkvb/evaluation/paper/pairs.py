"""Figure 5b of the paper: pairs.

    dkvb reproduce pairs --data DIR --seeds 1,2,3,4,5 --out OUT

The base model with one parameter changed. The paper reports a small loss with four times
fewer pairs, and a gap between i.i.d. and class-incremental accuracy at 256 or fewer.
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

TITLE = "Number of key-value pairs (Figure 5b)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the values of the parameter."""

    pairs: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    orders: tuple[str, ...] = ORDERS


PAPER = Config()
QUICK = Config(**_models.SMALL, pairs=(16, 64, 256))


def make_jobs(setup: Setup) -> list[Job]:
    """Return one bottleneck per value, class-incremental and i.i.d."""
    specs = [
        _models.bottleneck(setup.config, f"bottleneck:n_pairs={value}", n_pairs=value)
        for value in setup.config.pairs
    ]
    return setup.make_stream_jobs(setup.load_data(), specs, setup.config.orders)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each value."""
    return _sweep.make_table(records, setting("n_pairs"))


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracy over the values."""
    return _sweep.plot(
        records, path, title, value_of=setting("n_pairs"), label="pairs per codebook", log=True
    )
