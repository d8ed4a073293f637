"""Formatting of numbers and lists for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def shown(value: Any) -> str:
    """Format a table cell: mean ± standard deviation, a number or a text.

    >>> shown({"mean": 81.523, "std": 0.2}), shown({"mean": 0.0312, "std": None})
    ('81.52 ± 0.20', '0.031')
    >>> shown(81.5), shown(12345.6), shown(None)
    ('81.5', '12,346', '–')
    """
    if isinstance(value, Mapping):
        mean, std = value["mean"], value["std"]
        if mean is None:
            return "–"
        digits = 0 if abs(mean) >= 10_000 else 2 if abs(mean) >= 0.1 or mean == 0 else _few(mean)
        spread = f" ± {std:,.{digits}f}" if std is not None else ""
        return f"{mean:,.{digits}f}{spread}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return "–" if value is None else str(value)


def _few(small: float) -> int:
    return 3 if abs(small) >= 0.01 else 4


def ranges(numbers: Iterable[int]) -> str:
    """Format whole numbers as ranges.

    >>> ranges([1, 2, 3, 4, 5]), ranges([1, 2]), ranges([7, 1, 2, 3]), ranges([])
    ('1–5', '1, 2', '1–3, 7', '–')
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = (f"{run[0]}–{run[-1]}" if run[2:] else ", ".join(map(str, run)) for run in runs)
    return ", ".join(parts) or "–"


def duration(seconds: float) -> str:
    """Format seconds.

    >>> duration(0.31), duration(75), duration(5400)
    ('0.3 s', '1.2 min', '1.5 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def listed(names: Iterable[str]) -> str:
    """Join distinct names, in order."""
    return ", ".join(dict.fromkeys(name for name in names if name)) or "–"
