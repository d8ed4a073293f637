"""Pictures from records; nothing here trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb._support.optional import require
from dkvb.benchmark.records import Evaluation, Number, RunRecord

Floats = npt.NDArray[np.float64]


def plot_accuracy(
    records: Iterable[RunRecord], path: str | Path, title: str = "Accuracy over the stream"
) -> Path:
    """Draw accuracy on all classes over the stream, a line a classifier, a band over seeds.

    The band is the mean ± one standard deviation. A run of one task (iid) that was tested once is
    drawn as a level across the whole width, dashed, as what the others could reach; one of several
    tasks that was tested at the end only, as a point there.
    """
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.classifier, record.stream), []).append(record)
    if not groups:
        raise ValueError("records: expected at least one record; got none")
    classifiers = list(dict.fromkeys(classifier for classifier, _ in groups))
    colours = classifiers if classifiers[1:] else [stream for _, stream in groups]
    several_streams = len({stream for _, stream in groups}) > 1
    width = max(len(group[0].tasks) for group in groups.values())

    figure, (axes,) = make_axes()
    for (classifier, stream), group in groups.items():
        _draw(
            axes,
            *_mean_and_spread(group, width, lambda point: point.accuracy, 100.0),
            color=f"C{colours.index(classifier if classifiers[1:] else stream) % 10}",
            linestyle="--" if stream == "iid" and several_streams else "-",
            label=f"{classifier} ({stream})" if several_streams else classifier,
            width=width,
            level=len(group[0].tasks) == 1,
        )
    figure.suptitle(title)
    axes.set(xlabel="tasks learned", ylabel="accuracy on all classes (%)")
    axes.set(xlim=(0, width), ylim=(0, 101))
    if width <= 20:
        axes.set_xticks(range(width + 1))
    _legend(axes)
    return save(figure, path)


def plot_losses(records: Iterable[RunRecord], path: str | Path, title: str) -> Path:
    """Draw train and test loss over the stream, side by side, a line a classifier and order."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.classifier, record.stream), []).append(record)
    classifiers = list(dict.fromkeys(classifier for classifier, _ in groups))
    width = max(len(group[0].tasks) for group in groups.values())
    figure, both = make_axes(2, width=10)
    measures: tuple[tuple[str, Callable[[Evaluation], Number]], ...] = (
        ("train loss, on the task being learned", lambda point: point.train_loss),
        ("test loss, on all classes", lambda point: point.test_loss),
    )
    for axes, (label, measure) in zip(both, measures, strict=True):
        for (classifier, stream), group in groups.items():
            _draw(
                axes,
                *_mean_and_spread(group, width, measure),
                color=f"C{classifiers.index(classifier) % 10}",
                linestyle="--" if stream == "iid" else "-",
                label=f"{classifier} ({stream})",
                width=width,
                level=len(group[0].tasks) == 1,
            )
        axes.set(title=label, xlabel="tasks learned", xlim=(0, width), ylim=(0, None))
    figure.suptitle(title)
    _legend(both[-1])
    return save(figure, path)


@dataclass(frozen=True)
class Series:
    """A line: places, means and standard deviations there."""

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    std: Sequence[float]
    dashed: bool = False

    @classmethod
    def of(cls, label: str, by: Mapping[Any, Sequence[float]], dashed: bool = False) -> Series:
        """From values over seeds by place."""
        places = sorted(place for place, values in by.items() if values)
        means = [fmean(by[place]) for place in places]
        stds = [stdev(by[place]) if len(by[place]) > 1 else 0.0 for place in places]
        return cls(label, places, means, stds, dashed)


def plot_series(
    series: Sequence[Series], path: str | Path, title: str, x: str, y: str, *, log: bool = False
) -> Path:
    """Draw lines with bands of one standard deviation."""
    figure, (axes,) = make_axes()
    add_series(axes, series, log=log)
    figure.suptitle(title)
    axes.set(xlabel=x, ylabel=y)
    _legend(axes)
    return save(figure, path)


def add_series(axes: Any, series: Sequence[Series], *, log: bool = False) -> None:
    """Draw lines into axes; on a logarithmic scale, zero lies at the left edge."""
    if log:
        positive = [place for line in series for place in line.x if place > 0]
        axes.set_xscale("symlog", linthresh=min(positive, default=1.0))
    for number, line in enumerate(series):
        x, mean, std = (np.array(v, dtype=np.float64) for v in (line.x, line.mean, line.std))
        style = {"color": f"C{number % 10}", "linestyle": "--" if line.dashed else "-"}
        axes.plot(x, mean, marker="o", markersize=3.5, linewidth=1.6, label=line.label, **style)
        axes.fill_between(x, mean - std, mean + std, color=style["color"], alpha=0.18, lw=0)
    places = sorted({place for line in series for place in line.x})
    if len(places) <= 8:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()


def plot_bars(
    bars: Mapping[str, Mapping[str, Mapping[str, Number]]], path: str | Path, title: str, y: str
) -> Path:
    """Draw groups of bars: {group: {bar: {"mean", "std"}}}."""
    figure, (axes,) = make_axes(width=max(8.0, 1.0 * len(bars) + 3))
    names = list(dict.fromkeys(name for group in bars.values() for name in group))
    share = 0.8 / max(1, len(names))
    for place, name in enumerate(names):
        found = [(i, group[name]) for i, group in enumerate(bars.values()) if name in group]
        known = [(i, value) for i, value in found if value["mean"] is not None]
        axes.bar(
            [i + (place - (len(names) - 1) / 2) * share for i, _ in known],
            [value["mean"] for _, value in known],
            width=share,
            yerr=[value["std"] or 0.0 for _, value in known],
            label=name,
            capsize=2,
        )
    slant = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if len(bars) > 3 else {}
    axes.set_xticks(range(len(bars)), list(bars), **slant)
    figure.suptitle(title)
    axes.set(ylabel=y)
    _legend(axes)
    return save(figure, path)


def make_axes(columns: int = 1, width: float = 8.0, height: float = 4.5) -> tuple[Any, list[Any]]:
    """A figure with axes side by side. No pyplot: it keeps global state, and wants a display."""
    figure = require("matplotlib.figure", "plots", "plots").Figure(
        figsize=(width, height), layout="constrained"
    )
    require("matplotlib.backends.backend_agg", "plots", "plots").FigureCanvasAgg(figure)
    every = [figure.add_subplot(1, columns, column + 1) for column in range(columns)]
    for axes in every:
        axes.grid(alpha=0.3)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure, every


def save(figure: Any, path: str | Path) -> Path:
    """Write the picture."""
    figure.savefig(path, dpi=150)
    return Path(path)


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _mean_and_spread(
    records: list[RunRecord],
    width: int,
    measure: Callable[[Evaluation], Number],
    scale: float = 1.0,
) -> tuple[Floats, Floats, Floats]:
    """Places along the stream, the mean of a measure there and its standard deviation."""
    by_place: dict[float, list[float]] = {}
    for record in records:
        stretch = width / len(record.tasks)  # iid's one task spans the whole stream
        epochs = max((point.epoch or 1 for point in record.curve), default=1)
        for point in record.curve:
            place = stretch * (point.task + (point.epoch or epochs) / epochs)
            value = measure(point)
            if value is not None:
                by_place.setdefault(round(place, 6), []).append(scale * value)
    places = sorted(by_place)
    means = [np.mean(by_place[place]) for place in places]
    spreads = [np.std(by_place[place], ddof=1) if by_place[place][1:] else 0.0 for place in places]
    return np.array(places), np.array(means), np.array(spreads)


def _draw(
    axes: Any, x: Floats, mean: Floats, spread: Floats, *, width: int, level: bool, **style: Any
) -> None:
    if len(x) == 1 and width > 1:
        if not level:
            style = style | {"linestyle": "none", "marker": "o", "clip_on": False}
            axes.errorbar(x, mean, yerr=spread, markersize=5, **style)
            return
        x, mean, spread = np.array([0.0, width]), np.repeat(mean, 2), np.repeat(spread, 2)
        marker = ""
    else:
        marker = "o" if len(x) <= 20 else ""
    axes.plot(x, mean, marker=marker, markersize=3.5, linewidth=1.6, **style)
    axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.18, lw=0)
