"""Numbers of the paper, each with our tolerance and its section of the paper."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dkvb.evaluation.paper.encoders import canonical_name
from dkvb.evaluation.records import Number


class Target(NamedTuple):
    """One number of the paper, with a two-sided tolerance that we chose."""

    experiment: str
    row: str
    encoder: str
    measure: str
    value: float
    tolerance: float
    source: str

    def is_met_by(self, ours: float) -> bool:
        return abs(ours - self.value) <= self.tolerance


@cache
def targets() -> tuple[Target, ...]:
    """Return all targets of `targets.csv`."""
    with (files(__package__) / "targets.csv").open(encoding="utf-8") as file:
        return tuple(
            Target(
                **row | {"value": float(row["value"]), "tolerance": float(row["tolerance"])}  # type: ignore[arg-type]
            )
            for row in csv.DictReader(file)
        )


def target(experiment: str, row: str, encoder: str) -> Target | None:
    """Return the paper's number for a row of an experiment's table, or None.

    >>> target("cifar10", "bottleneck", "resnet50").value
    81.5
    >>> target("cifar10", "bottleneck", "clip_vit_b32") == target("cifar10", "bottleneck", "clip")
    True
    """
    wanted = canonical_name(encoder)
    found = (t for t in targets() if (t.experiment, t.row) == (experiment, row))
    return next((t for t in found if canonical_name(t.encoder) == wanted), None)


def beside(experiment: str, row: str, encoder: str, ours: dict[str, Number]) -> dict[str, Any]:
    """Return table columns with the paper's number: ✓ within the tolerance, ✗ outside."""
    known = target(experiment, row, encoder)
    if known is None:
        return {}
    mean = ours["mean"]
    met = "" if mean is None else "✓" if known.is_met_by(mean) else "✗"
    return {"paper": known.value, "within": f"±{known.tolerance:g} {met}".strip()}
