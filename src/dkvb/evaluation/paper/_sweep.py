"""Table and figure of sweeps over one parameter of the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dkvb.evaluation.paper.tables import final, final_accuracies, get_order, group_by, only
from dkvb.evaluation.plots import Series, plot_series
from dkvb.evaluation.records import RunRecord


def make_table(
    records: Sequence[RunRecord], value_of: Callable[[RunRecord], Any]
) -> dict[str, dict[str, Any]]:
    """Return one row per value: final accuracy in percent, class-incremental and i.i.d."""
    return {
        str(value): {order: final(same) for order, same in group_by(group, get_order).items()}
        for value, group in sorted(group_by(records, value_of).items())
    }


def plot(
    records: Sequence[RunRecord],
    path: Path,
    title: str,
    *,
    value_of: Callable[[RunRecord], Any],
    label: str,
    log: bool = False,
) -> Path:
    """Plot final accuracy over the values, one line per order."""
    series = []
    for order in group_by(records, get_order):
        by = {
            value: final_accuracies(group)
            for value, group in sorted(group_by(only(records, order=order), value_of).items())
        }
        series.append(Series.from_values(order, by, dashed=order == "iid"))
    return plot_series(series, path, title, label, "final accuracy (%)", log=log)
