"""Figures drawn from records. Nothing here trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb._support.optional import require
from dkvb.evaluation.records import Evaluation, Number, RunRecord

Floats = npt.NDArray[np.float64]
Groups = dict[tuple[str, str], list[RunRecord]]

_LABEL_GAP = 4.2  # percentage points between two labels, at least


def plot_accuracy(
    records: Iterable[RunRecord], path: str | Path, title: str = "Accuracy over the stream"
) -> Path:
    """Plot the accuracy over the stream, one line per classifier, labelled at its right end.

    The left panel has the accuracy on all classes, as in the paper, and the right panel the
    accuracy on the classes seen so far. Bands are the mean ± one standard deviation over seeds.
    Streams of one task (i.i.d.) are shown by a tick at the right edge, at their final accuracy. A
    stream that was evaluated after the last task only is shown by a point.
    """
    groups = _group(records)
    if not groups:
        raise ValueError("records: expected at least one record; got none")
    lines = {key: group for key, group in groups.items() if group[0].tasks[1:]}
    ticks = {key: group for key, group in groups.items() if key not in lines}
    colours = _colours(groups)
    width = max(len(group[0].tasks) for group in groups.values())
    has_curve = any(len(group[0].curve) > 1 for group in lines.values())
    measures: list[tuple[str, Callable[[Evaluation], Number]]] = [
        ("all classes", lambda point: point.accuracy)
    ]
    if has_curve:
        measures.append(("classes seen so far", lambda point: point.seen_accuracy))

    height = max(4.2, 0.24 * len(groups) + 1)
    figure, panels = make_axes(len(measures), width=4.2 * len(measures) + 2.6, height=height)
    for axes, (name, measure) in zip(panels, measures, strict=True):
        for key, group in lines.items():
            curve = _mean_curve(group, width, measure, 100.0)
            _draw_curve(axes, *curve, color=colours[key], is_point=len(group[0].curve) == 1)
        for key, group in ticks.items():
            _draw_tick(axes, _final(group), colours[key])
        axes.set(title=name, xlabel="tasks learned", ylabel="accuracy (%)")
        axes.set(xlim=(0, width), ylim=(0, 101))
        if width <= 20:
            axes.set_xticks(range(width + 1))
    labels = {}
    for (classifier, stream), group in groups.items():
        if group[0].tasks[1:] or not any(name == classifier for name, _ in lines):
            name = _label(classifier, stream, lines)
            labels[name] = (_final(group), colours[classifier, stream])
    _label_ends(panels[-1], labels)
    note = (
        "\n(ticks at the right edge: the same classifier on i.i.d. data)" if ticks and lines else ""
    )
    figure.suptitle(title + note, fontsize="medium")
    return save_figure(figure, path)


def plot_panels(records: Mapping[str, Iterable[RunRecord]], path: str | Path, title: str) -> Path:
    """Plot the accuracy on all classes over the stream, one panel per name.

    Bands and ticks are those of `plot_accuracy`.
    """
    panels = {name: _group(group) for name, group in records.items()}
    every: Groups = {key: group for groups in panels.values() for key, group in groups.items()}
    names = list(dict.fromkeys(classifier for classifier, _ in every))
    colours = {name: f"C{number % 10}" for number, name in enumerate(names)}
    figure, axes = make_axes(len(panels), width=3.4 * len(panels) + 2.0, height=4.2)
    for ax, (name, groups) in zip(axes, panels.items(), strict=True):
        width = max(len(group[0].tasks) for group in groups.values())
        for (classifier, _), group in groups.items():
            if group[0].tasks[1:]:
                curve = _mean_curve(group, width, lambda point: point.accuracy, 100.0)
                is_point = len(group[0].curve) == 1
                _draw_curve(ax, *curve, color=colours[classifier], is_point=is_point)
            else:
                _draw_tick(ax, _final(group), colours[classifier])
        ax.set(title=name, xlabel="tasks learned", ylabel="accuracy (%)")
        ax.set(xlim=(0, width), ylim=(0, 101))
        ax.set_xticks(range(width + 1))
    for name, colour in colours.items():
        axes[-1].plot([], [], color=colour, label=name)
    _add_legend(axes[-1])
    note = "(ticks at the right edge: the same classifier on i.i.d. data)"
    figure.suptitle(f"{title}\n{note}" if title else note, fontsize="medium")
    return save_figure(figure, path)


def plot_losses(records: Iterable[RunRecord], path: str | Path, title: str) -> Path:
    """Plot train and test loss over the stream, one line per classifier and order."""
    groups = _group(records)
    colours = _colours(groups)
    width = max(len(group[0].tasks) for group in groups.values())
    figure, panels = make_axes(2, width=10)
    measures: tuple[tuple[str, Callable[[Evaluation], Number]], ...] = (
        ("train loss on the present task", lambda point: point.train_loss),
        ("test loss on all classes", lambda point: point.test_loss),
    )
    for axes, (name, measure) in zip(panels, measures, strict=True):
        for (classifier, stream), group in groups.items():
            _draw_curve(
                axes,
                *_mean_curve(group, width, measure),
                color=colours[classifier, stream],
                linestyle="--" if stream == "iid" else "-",
                label=f"{classifier} ({stream})",
                is_point=width > 1 and len(group[0].curve) == 1,
            )
        axes.set(title=name, xlabel="tasks learned", xlim=(0, width), ylim=(0, None))
    figure.suptitle(title)
    _add_legend(panels[-1])
    return save_figure(figure, path)


@dataclass(frozen=True)
class Series:
    """A line: mean and standard deviation at each x."""

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    std: Sequence[float]
    dashed: bool = False

    @classmethod
    def from_values(
        cls, label: str, values: Mapping[Any, Sequence[float]], dashed: bool = False
    ) -> Series:
        """Return the line through the values over seeds at each x."""
        x = sorted(key for key, at_x in values.items() if at_x)
        means = [fmean(values[key]) for key in x]
        stds = [stdev(values[key]) if len(values[key]) > 1 else 0.0 for key in x]
        return cls(label, x, means, stds, dashed)


def plot_series(
    series: Sequence[Series], path: str | Path, title: str, x: str, y: str, *, log: bool = False
) -> Path:
    """Plot lines with bands of ± one standard deviation."""
    figure, (axes,) = make_axes()
    add_series(axes, series, log=log)
    figure.suptitle(title)
    axes.set(xlabel=x, ylabel=y)
    _add_legend(axes)
    return save_figure(figure, path)


def add_series(axes: Any, series: Sequence[Series], *, log: bool = False) -> None:
    """Draw lines into axes; on a logarithmic scale, zero is at the left edge."""
    if log:
        positive = [x for line in series for x in line.x if x > 0]
        axes.set_xscale("symlog", linthresh=min(positive, default=1.0))
    for number, line in enumerate(series):
        x, mean, std = (np.array(v, dtype=np.float64) for v in (line.x, line.mean, line.std))
        style = {"color": f"C{number % 10}", "linestyle": "--" if line.dashed else "-"}
        axes.plot(x, mean, marker="o", markersize=3.5, linewidth=1.6, label=line.label, **style)
        axes.fill_between(x, mean - std, mean + std, color=style["color"], alpha=0.18, lw=0)
    every_x = sorted({x for line in series for x in line.x})
    if len(every_x) <= 8:
        axes.set_xticks(every_x, [f"{x:g}" for x in every_x])
        axes.minorticks_off()


def plot_bars(
    bars: Mapping[str, Mapping[str, Mapping[str, Number]]], path: str | Path, title: str, y: str
) -> Path:
    """Plot groups of bars: {group: {bar: {"mean", "std"}}}."""
    figure, (axes,) = make_axes(width=max(8.0, 1.0 * len(bars) + 3))
    names = list(dict.fromkeys(name for group in bars.values() for name in group))
    bar_width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        present = [(i, group[name]) for i, group in enumerate(bars.values()) if name in group]
        known = [(i, value) for i, value in present if value["mean"] is not None]
        axes.bar(
            [i + (number - (len(names) - 1) / 2) * bar_width for i, _ in known],
            [value["mean"] for _, value in known],
            width=bar_width,
            yerr=[value["std"] or 0.0 for _, value in known],
            label=name,
            capsize=2,
        )
    slant = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if len(bars) > 3 else {}
    axes.set_xticks(range(len(bars)), list(bars), **slant)
    figure.suptitle(title)
    axes.set(ylabel=y)
    _add_legend(axes)
    return save_figure(figure, path)


def make_axes(columns: int = 1, width: float = 8.0, height: float = 4.5) -> tuple[Any, list[Any]]:
    """Return a figure with axes side by side, without pyplot, which keeps global state."""
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


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write the figure and return its path."""
    figure.savefig(path, dpi=150)
    return Path(path)


def spread_labels(values: Sequence[float], gap: float, high: float = 100.0) -> list[float]:
    """Return heights near the values that are at least `gap` apart, and at most `high` if possible.

    >>> spread_labels([10.0, 50.0, 51.0], gap=4)
    [10.0, 50.0, 54.0]
    >>> spread_labels([99.0, 98.0], gap=4)
    [100.0, 96.0]
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    heights = list(values)
    for below, above in pairwise(order):
        heights[above] = max(heights[above], heights[below] + gap)
    limit = high
    for index in reversed(order):
        heights[index] = min(heights[index], limit)
        limit = heights[index] - gap
    return heights


def _group(records: Iterable[RunRecord]) -> Groups:
    groups: Groups = {}
    for record in records:
        groups.setdefault((record.classifier, record.stream), []).append(record)
    return groups


def _colours(groups: Groups) -> dict[tuple[str, str], str]:
    """One colour per classifier, or per stream if there is one classifier."""
    classifiers = list(dict.fromkeys(classifier for classifier, _ in groups))
    streams = list(dict.fromkeys(stream for _, stream in groups))
    return {
        (classifier, stream): f"C{classifiers.index(classifier) % 10}"
        if classifiers[1:]
        else f"C{streams.index(stream) % 10}"
        for classifier, stream in groups
    }


def _label(classifier: str, stream: str, lines: Groups) -> str:
    """Name a line by its classifier, by its stream, or by both."""
    if (classifier, stream) not in lines:
        return f"{classifier} ({stream})" if lines else classifier
    several_streams = len({stream for _, stream in lines}) > 1
    several_classifiers = len({classifier for classifier, _ in lines}) > 1
    if not several_streams:
        return classifier
    return f"{classifier} ({stream})" if several_classifiers else stream


def _label_ends(axes: Any, labels: Mapping[str, tuple[float, str]]) -> None:
    """Write labels beside the right edge, each near its final accuracy (percent)."""
    known = {name: label for name, label in labels.items() if not np.isnan(label[0])}
    heights = spread_labels([value for value, _ in known.values()], _LABEL_GAP)
    for (name, (value, colour)), height in zip(known.items(), heights, strict=True):
        axes.annotate(
            f"{name}  {value:.1f}",
            xy=(1.0, value),
            xytext=(1.09, height),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize="small",
            color=colour,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "lw": 0.6,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 5,
            },
            annotation_clip=False,
        )


def _add_legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _final(records: Sequence[RunRecord]) -> float:
    """Return the mean final accuracy in percent, NaN if there is none."""
    values = [r.curve[-1].accuracy for r in records if r.curve]
    known = [100 * value for value in values if value is not None]
    return fmean(known) if known else float("nan")


def _mean_curve(
    records: Sequence[RunRecord],
    width: int,
    measure: Callable[[Evaluation], Number],
    scale: float = 1.0,
) -> tuple[Floats, Floats, Floats]:
    """Return positions along the stream, with mean and standard deviation of a measure."""
    values: dict[float, list[float]] = {}
    for record in records:
        stretch = width / len(record.tasks)  # a stream of one task spans the whole width
        epochs = max((point.epoch or 1 for point in record.curve), default=1)
        for point in record.curve:
            position = stretch * (point.task + (point.epoch or epochs) / epochs)
            value = measure(point)
            if value is not None:
                values.setdefault(round(position, 6), []).append(scale * value)
    positions = sorted(values)
    means = [np.mean(values[position]) for position in positions]
    stds = [np.std(values[p], ddof=1) if values[p][1:] else 0.0 for p in positions]
    return np.array(positions), np.array(means), np.array(stds)


def _draw_curve(
    axes: Any, x: Floats, mean: Floats, std: Floats, *, is_point: bool, **style: Any
) -> None:
    if is_point:
        style |= {"linestyle": "none", "marker": "o", "clip_on": False}
        axes.errorbar(x, mean, yerr=std, markersize=5, **style)
        return
    marker = "o" if len(x) <= 20 else ""
    axes.plot(x, mean, marker=marker, markersize=3.5, linewidth=1.6, **style)
    axes.fill_between(x, mean - std, mean + std, color=style["color"], alpha=0.18, lw=0)


def _draw_tick(axes: Any, value: float, colour: str) -> None:
    """Mark an accuracy by a short line at the right edge."""
    transform = axes.get_yaxis_transform()
    axes.plot([0.985, 1.03], [value, value], color=colour, lw=2, transform=transform, clip_on=False)
