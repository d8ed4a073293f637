"""What the sweeps over one setting of the bottleneck share: table and picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dkvb.benchmark.paper._tables import final, finals, grouped, only, order_of
from dkvb.benchmark.plots import Series, draw_series
from dkvb.benchmark.records import RunRecord


def table(
    records: Sequence[RunRecord], value_of: Callable[[RunRecord], Any]
) -> dict[str, dict[str, Any]]:
    """A row a value: final accuracy class-incremental and iid, in percent."""
    return {
        str(value): {order: final(same) for order, same in grouped(own, order_of).items()}
        for value, own in sorted(grouped(records, value_of).items())
    }


def draw(
    records: Sequence[RunRecord],
    path: Path,
    title: str,
    *,
    value_of: Callable[[RunRecord], Any],
    label: str,
    log: bool = False,
) -> Path:
    """Final accuracy over the values, a line an order with a band over seeds."""
    series = []
    for order in grouped(records, order_of):
        by = {
            value: finals(own)
            for value, own in sorted(grouped(only(records, order=order), value_of).items())
        }
        series.append(Series.of(order, by, dashed=order == "iid"))
    return draw_series(series, path, title, label, "final accuracy (%)", log=log)
