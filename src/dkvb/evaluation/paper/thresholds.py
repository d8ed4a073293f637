"""Thresholds of the statements, with their history, from one file: `thresholds.csv`."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Threshold(NamedTuple):
    """A number that we chose, its unit, when it was chosen, and whether after seeing data."""

    name: str
    value: float
    history: str


@cache
def thresholds() -> dict[str, Threshold]:
    """Return all thresholds by name."""
    with (files(__package__) / "thresholds.csv").open(encoding="utf-8") as file:
        rows = [
            Threshold(row["name"], float(row["value"]), row["history"])
            for row in csv.DictReader(file)
        ]
    return {row.name: row for row in rows}


def threshold(name: str) -> float:
    """Return the value of a threshold.

    >>> threshold("equal_accuracy")
    0.5
    """
    return thresholds()[name].value
