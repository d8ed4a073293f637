"""Pictures from records; nothing here trains."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb.records import RunRecord

Floats = npt.NDArray[np.float64]


def accuracy_curves(
    records: Iterable[RunRecord], path: str | Path, title: str = "Accuracy over the stream"
) -> Path:
    """Draw accuracy on all classes over the stream, a line a classifier, a band over seeds.

    The band is the mean ± one standard deviation. A run tested only once (iid, at its end) is
    drawn as a level across the whole width, dashed, as what the others could reach.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.classifier, record.stream), []).append(record)
    if not groups:
        raise ValueError("records: expected at least one record; got none")
    classifiers = list(dict.fromkeys(classifier for classifier, _ in groups))
    several_streams = len({stream for _, stream in groups}) > 1
    width = max(len(group[0].stages) for group in groups.values())

    # No pyplot: it keeps global state, and would look for a display.
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (classifier, stream), group in groups.items():
        _draw(
            axes,
            *_mean_and_spread(group, width),
            color=f"C{classifiers.index(classifier) % 10}",
            linestyle="--" if stream == "iid" and several_streams else "-",
            label=f"{classifier} ({stream})" if several_streams else classifier,
            width=width,
        )
    axes.set(title=title, xlabel="stages learned", ylabel="accuracy on all classes (%)")
    axes.set(xlim=(0, width), ylim=(0, 101))
    if width <= 20:
        axes.set_xticks(range(width + 1))
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=150)
    return Path(path)


def _mean_and_spread(records: list[RunRecord], width: int) -> tuple[Floats, Floats, Floats]:
    """Places along the stream, mean accuracy there and its standard deviation, in percent."""
    by_place: dict[float, list[float]] = {}
    for record in records:
        stretch = width / len(record.stages)  # iid's one stage spans the whole stream
        epochs = max((point.epoch or 1 for point in record.curve), default=1)
        for point in record.curve:
            place = stretch * (point.stage + (point.epoch or epochs) / epochs)
            if point.accuracy is not None:
                by_place.setdefault(round(place, 6), []).append(100 * point.accuracy)
    places = sorted(by_place)
    means = [np.mean(by_place[place]) for place in places]
    spreads = [np.std(by_place[place], ddof=1) if by_place[place][1:] else 0.0 for place in places]
    return np.array(places), np.array(means), np.array(spreads)


def _draw(axes: Any, x: Floats, mean: Floats, spread: Floats, *, width: int, **style: Any) -> None:
    marker = "o" if 1 < len(x) <= 20 or width == 1 else ""
    if len(x) == 1 and width > 1:
        x, mean, spread = np.array([0.0, width]), np.repeat(mean, 2), np.repeat(spread, 2)
    axes.plot(x, mean, marker=marker, markersize=3.5, linewidth=1.6, **style)
    axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.18, lw=0)
