"""Figure 5a of the paper: key-dim.

    dkvb reproduce key-dim --data DIR --seeds 1,2,3,4,5 --out OUT

The base model with one parameter changed. The paper reports the best accuracy at 8 to 12.
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

TITLE = "Dimension of keys (Figure 5a)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the values of the parameter."""

    key_dims: tuple[int, ...] = (4, 8, 12, 16, 32)
    orders: tuple[str, ...] = ORDERS


PAPER = Config()
QUICK = Config(**_models.SMALL, key_dims=(2, 4, 8, 16))


def make_jobs(setup: Setup) -> list[Job]:
    """Return one bottleneck per value, class-incremental and i.i.d."""
    specs = [
        _models.bottleneck(setup.config, f"bottleneck:key_dim={value}", key_dim=value)
        for value in setup.config.key_dims
    ]
    return setup.make_stream_jobs(setup.load_data(), specs, setup.config.orders)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each value."""
    return _sweep.make_table(records, setting("key_dim"))


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracy over the values."""
    return _sweep.plot(
        records, path, title, value_of=setting("key_dim"), label="key dimension", log=False
    )
