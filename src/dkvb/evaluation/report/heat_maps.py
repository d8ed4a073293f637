"""Heat maps: confusion matrices, and accuracy per class over the stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb.evaluation.paper.tables import group_by, only
from dkvb.evaluation.plots import make_axes, save_figure
from dkvb.evaluation.records import RunRecord

CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_MOST_PANELS = 5


def shown(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return one class-incremental record per classifier, all of one seed."""
    ours = [record for record in only(records, order="class-incremental") if record.tasks[1:]]
    same = [record for record in ours if record.tasks == ours[0].tasks]
    firsts = [group[0] for group in group_by(same, lambda record: record.classifier).values()]
    return firsts[:_MOST_PANELS]


def confusion(records: Sequence[RunRecord], path: Path) -> Path:
    """Plot final confusion matrices, classes in the order in which they were learned."""
    figure, every = _heat_panels(len(records))
    for axes, record in zip(every, records, strict=True):
        order = _order(record)
        counts = np.array(record.extra["confusion"], dtype=np.float64)[order][:, order]  # (Y, Y)
        shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
        _heat(axes, shares, (0, len(order), len(order), 0))
        _task_lines(axes, record, both=True)
        axes.set(title=record.classifier, xlabel="predicted", xticks=[])
    _name_classes(every, records[0], "true class")
    return save_figure(figure, path)


def over_time(records: Sequence[RunRecord], path: Path) -> Path:
    """Plot the accuracy on each class (rows) over the stream (left to right)."""
    figure, every = _heat_panels(len(records))
    for axes, record in zip(every, records, strict=True):
        order, n_tasks = _order(record), len(record.tasks)
        table = [[np.nan if v is None else v for v in point.per_class] for point in record.curve]
        known = np.array(table, dtype=np.float64).T[order]  # (Y, evaluations)
        _heat(axes, known, (0, n_tasks, len(order), 0))
        _task_lines(axes, record, both=False)
        axes.set(title=record.classifier, xlabel="tasks learned")
    _name_classes(every, records[0], "class")
    return save_figure(figure, path)


def _heat_panels(n: int) -> tuple[Any, list[Any]]:
    width, height = {1: (6.6, 4.2), 2: (8.0, 3.4)}.get(n, (1.0 + 2.05 * n, 3.0))
    figure, every = make_axes(n, width=width, height=height)
    for axes in every:
        axes.grid(visible=False)
    return figure, every


def _heat(axes: Any, table: npt.NDArray[np.float64], extent: tuple[float, ...]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    # Transparent to opaque, for light and dark pages.
    colours = LinearSegmentedColormap.from_list("share", ["#2f6db300", "#2f6db3ff"])
    axes.imshow(
        table, extent=extent, vmin=0, vmax=1, cmap=colours, aspect="auto", interpolation="nearest"
    )


def _task_lines(axes: Any, record: RunRecord, *, both: bool) -> None:
    ends = np.cumsum([len(task) for task in record.tasks])[:-1]
    if len(ends) > 10:  # too many lines hide the map
        return
    for end in ends:
        axes.axhline(end, color="#7b8794", linewidth=0.4)
    for place in ends if both else range(1, len(record.tasks)):
        axes.axvline(place, color="#7b8794", linewidth=0.4)


def _name_classes(every: list[Any], record: RunRecord, label: str) -> None:
    order = _order(record)
    names = [str(record.classes[i]) for i in order]
    if record.config["data"]["train"] == "cifar10" and sorted(names) == [*"0123456789"]:
        names = [CIFAR10[int(name)] for name in names]
    for axes in every:
        axes.set_yticks([])
    if len(names) <= 20:
        every[0].set_yticks(np.arange(len(names)) + 0.5, names, fontsize="small")
        every[0].tick_params(length=0)
    every[0].set_ylabel(f"{label}, in order learned")


def _order(record: RunRecord) -> list[int]:
    """Return class indices in the order in which they were learned."""
    return [record.classes.index(label) for task in record.tasks for label in task]
