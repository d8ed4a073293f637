"""Figure 4 of the paper: key-dim.

    dkvb reproduce key-dim --data DIR --seeds 1,2,3,4,5 --out OUT

The base model with one setting changed. The paper: best at 8 to 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.benchmark.grid import ORDERS
from dkvb.benchmark.paper import _models, _sweep
from dkvb.benchmark.paper._experiment import Setup
from dkvb.benchmark.paper._tables import setting
from dkvb.benchmark.records import Job, RunRecord

TITLE = "Dimension of keys (Figure 4a)"


@dataclass(frozen=True)
class Config(_models.Schedule):
    """The base model, and the values of the setting."""

    key_dims: tuple[int, ...] = (4, 8, 12, 16, 32)
    orders: tuple[str, ...] = ORDERS


PAPER = Config()
QUICK = Config(**_models.SMALL, key_dims=(2, 4, 8, 16))


def jobs(setup: Setup) -> list[Job]:
    """A bottleneck for each value, class-incremental and iid."""
    specs = [
        _models.bottleneck(setup.config, f"bottleneck:key_dim={value}", key_dim=value)
        for value in setup.config.key_dims
    ]
    return setup.stream_jobs(setup.data(), specs, setup.config.orders)


def table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Final accuracy for each value."""
    return _sweep.table(records, setting("key_dim"))


def draw(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Final accuracy over the values."""
    return _sweep.draw(
        records, path, title, value_of=setting("key_dim"), label="key dimension", log=False
    )
