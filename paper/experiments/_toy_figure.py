"""The figure of the toy experiment, drawn from records.

The records of the first seed have `extra["drawing"]` with `regions`, the predicted class of each
grid cell after each task, + 8 where no pair was trained, and `pruned_regions` (see `pack`);
`points` of each task [[x, y, class], …]; and `keys` and `pruned_keys` [[x, y], …], empty where
keys are in projected spaces.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb.evaluation.records import RunRecord

Array = npt.NDArray[Any]


def pack(regions: npt.ArrayLike) -> str:
    """Return a square of classes (g, g) as a short string.

    >>> unpack(pack([[0, 1], [2, 7]]))
    array([[0, 1],
           [2, 7]], dtype=uint8)
    """
    return b64encode(zlib.compress(np.asarray(regions, dtype=np.uint8).tobytes(), 9)).decode()


def unpack(text: str) -> npt.NDArray[np.uint8]:
    """Return the square of classes (g, g) of a string."""
    flat = np.frombuffer(zlib.decompress(b64decode(text)), dtype=np.uint8)
    side = int(len(flat) ** 0.5)
    return flat.reshape(side, side)


_ROWS = {
    "linear": "(a)  linear probe",
    "mlp": "(b)  MLP\n32 hidden units",
    "bottleneck-1x400": "(c)  bottleneck\n1 codebook\n× 400 pairs",
    "bottleneck-20x20": "(d)  bottleneck\n20 codebooks\n× 20 pairs",
}
# Per class: its points, and its regions; fainter where no pair was trained.
_STRONG = ("#2f6db3", "#e07b10", "#35903b", "#cf3b3b", "#7c50b4", "#b79a00", "#12918a", "#c3478f")
_LIGHT = ("#bcd5f0", "#fcd9b0", "#c3e6c3", "#f7c4c4", "#dbcbee", "#fbeea6", "#bfe8e4", "#f4c9e2")
_FAINT = 0.35  # of the colour, the rest is white
_INK = "#333333"

# Inches. A panel of 100 × 100 cells and 200 dots is sharp.
_DPI = 125
_PANEL, _GAP = 200 / _DPI, 0.07
_LEFT, _TOP, _EDGE = 1.26, 0.3, 0.04


def plot(records: Iterable[RunRecord], path: str | Path) -> Path:
    """Draw one row per model, with one column after each task and one after pruning.

    Colours are predicted classes. The number is the accuracy on test points of all tasks so far.
    Dots are training points: large in the present task, small in earlier ones.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [record for record in records if "drawing" in record.extra]
    if not drawn:
        raise ValueError("records: expected at least one with a drawing; got none")
    n_tasks = len(drawn[0].tasks)
    width = _LEFT + _across(n_tasks + 1) + _EDGE
    height = _TOP + _across(len(drawn)) + _EDGE
    # No pyplot: it keeps global state, and would look for a display.
    figure = Figure(figsize=(width, height), dpi=_DPI)
    canvas: Any = FigureCanvasAgg(figure)

    def panel_at(row: int, column: int) -> Any:
        x, y = _LEFT + column * (_PANEL + _GAP), height - _TOP - row * (_PANEL + _GAP) - _PANEL
        return figure.add_axes((x / width, y / height, _PANEL / width, _PANEL / height))

    pruned_title = "unused pairs pruned"
    for row, record in enumerate(drawn):
        middle = (height - _TOP - row * (_PANEL + _GAP) - _PANEL / 2) / height
        label = _ROWS.get(record.classifier, record.classifier)
        figure.text(0.08 / width, middle, label, va="center", fontsize=9.5, color=_INK)
        for task in range(n_tasks):
            axes = panel_at(row, task)
            _panel(axes, record, task)
            if row == 0:
                axes.set_title(f"after task {task + 1}", fontsize=10, color=_INK, pad=5)
        if record.classifier.startswith("bottleneck"):
            axes = panel_at(row, n_tasks)
            _panel(axes, record, n_tasks - 1, pruned=True)
            axes.set_title(pruned_title, fontsize=10, color=_INK, pad=5)
            pruned_title = ""
        elif row == 0:  # nothing to prune: space for the legend
            _legend(panel_at(row, n_tasks))
    canvas.draw()
    _save(np.asarray(canvas.buffer_rgba()), Path(path))
    return Path(path)


def _across(panels: int) -> float:
    return panels * _PANEL + (panels - 1) * _GAP


def _panel(axes: Any, record: RunRecord, task: int, *, pruned: bool = False) -> None:
    drawing = record.extra["drawing"]
    cells = unpack(drawing["pruned_regions"] if pruned else drawing["regions"][task])  # (g, g)
    axes.imshow(_palette()[cells], origin="lower", extent=(0, 1, 0, 1), interpolation="nearest")
    keys = np.array(drawing["pruned_keys" if pruned else "keys"]).reshape(-1, 2)
    axes.plot(*keys.T, ".", color="black", markersize=1.7, markeredgewidth=0, alpha=0.7)
    for number, points in enumerate(drawing["points"][: task + 1]):
        x, y, classes = np.array(points).T
        now = number == task and not pruned
        axes.scatter(
            x,
            y,
            c=[_STRONG[int(c)] for c in classes],
            s=8 if now else 2.2,
            linewidths=0.35 if now else 0,
            edgecolors="white",
        )
    shown = record.extra["pruned_accuracy"] if pruned else record.accuracy_matrix[task]
    accuracy = np.array(shown[: task + 1], dtype=np.float64)
    _number(axes, 0.965, 0.04, f"{100 * np.mean(accuracy):.0f} %", ha="right")
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color="#999999", linewidth=0.6)


def _legend(axes: Any) -> None:
    palette = _palette()
    notes = (
        ("s", 8.0, palette[0], "predicted class"),
        ("s", 8.0, palette[len(_LIGHT)], "no pair was\ntrained here"),
        ("o", 3.6, _STRONG[0], "training point"),
        ("o", 1.8, _STRONG[0], "of an earlier task"),
        (".", 3.0, "black", "key, in (c)"),
    )
    y = 0.93
    for marker, size, colour, text in notes:
        axes.plot([0.14], [y], marker, markersize=size, color=colour, markeredgewidth=0)
        axes.text(0.27, y + 0.045, text, va="top", fontsize=8, color=_INK, linespacing=1.1)
        y -= 0.15 if "\n" not in text else 0.24
    _number(axes, 0.14, y - 0.05, "92 %", ha="center")
    axes.text(0.27, y + 0.045, "accuracy on all\ntasks so far", va="top", fontsize=8, color=_INK)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()


def _number(axes: Any, x: float, y: float, text: str, **place: Any) -> None:
    box = {"boxstyle": "round,pad=0.18", "facecolor": "white", "alpha": 0.85, "lw": 0}
    axes.text(x, y, text, va="bottom", fontsize=8.5, color=_INK, bbox=box, **place)


def _palette() -> Array:
    """Return the colours of regions (16, 3): per class, then per class without trained pairs."""
    light = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in _LIGHT])
    return np.concatenate([light, 1 - _FAINT * (1 - light)])


def _save(pixels: Array, path: Path) -> None:
    """Save with a palette, which takes a third of the size."""
    from PIL import Image

    image = Image.fromarray(pixels).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)
