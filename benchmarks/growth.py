"""How time grows when n, codebooks, pairs and classes are doubled, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks import records
from benchmarks.problem import LEARNING_RATE, SMOOTHING, Size, doubled, embeddings, sampled_keys
from dkvb.bottleneck.initialise import fit_keys
from dkvb.kernels.descend import descend
from dkvb.kernels.hashing import epoch_orders

BASE = Size("growth", n_codebooks=64, n_pairs=1024, width=512, rows=1024)
LIMIT = 2.3
DOUBLINGS = 2
AXES = {"rows": "n", "n_codebooks": "codebooks", "n_pairs": "pairs", "n_classes": "classes"}


def _snap(size: Size) -> Callable[[], Any]:
    keys, x = sampled_keys(size), embeddings(size.rows, size.width)
    return lambda: keys.snap(x)


def _descend(size: Size) -> Callable[[], Any]:
    shape = (size.n_codebooks, size.n_pairs, size.n_classes)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(size.n_pairs, (size.rows, size.n_codebooks), generator=generator).int()
    y = torch.randint(size.n_classes, (size.rows,), generator=generator)
    orders, values = epoch_orders(size.rows, 0, 0, size.epochs), torch.zeros(shape)
    return lambda: descend(values, codes, y, orders, size.batch, LEARNING_RATE, SMOOTHING)


def _fit(size: Size) -> Callable[[], Any]:
    # A multiple of the rows that pairs need, so that pairs can be doubled and rows stay.
    x = embeddings(5 * size.rows, size.width)
    return lambda: fit_keys(
        x, n_codebooks=size.n_codebooks, n_pairs=size.n_pairs, key_dim=size.key_dim, epochs=4
    )


OPERATIONS: dict[str, tuple[Callable[[Size], Callable[[], Any]], tuple[str, ...]]] = {
    "snap": (_snap, ("rows", "n_codebooks", "n_pairs")),
    "SGD": (_descend, ("rows", "n_codebooks", "n_pairs", "n_classes")),
    "fit_keys": (_fit, ("rows", "n_codebooks", "n_pairs")),
}


def run(out: Path, plot: Path, at_least: float = 0.5, base: Size = BASE, repeats: int = 3) -> int:
    """Measure, append to `out`, draw `plot`, print a table; 1 if a doubling costs too much."""
    rows = [
        row for op in OPERATIONS for row in measure(op, _long_enough(op, base, at_least), repeats)
    ]
    records.append(out, rows)
    _draw(rows, plot)
    records.show(
        f"Time when one number is doubled (at most {LIMIT} times as long)",
        ["<operation", "<doubled", "from", "times", "factors"],
        [
            [
                row["op"],
                row["axis"],
                str(row["base"]),
                " → ".join(records.seconds(value) for value in row["seconds"]),
                " ".join(f"{f:.2f}" + (" missed" if f > LIMIT else "") for f in row["factors"]),
            ]
            for row in rows
        ],
    )
    return int(any(max(row["factors"]) > LIMIT for row in rows))


def measure(op: str, size: Size, repeats: int) -> list[dict[str, Any]]:
    """One record for each number that is doubled."""
    prepare, axes = OPERATIONS[op]
    found = []
    for axis in axes:
        sizes = [size]
        for _ in range(DOUBLINGS):
            sizes.append(doubled(sizes[-1], axis))
        calls = [prepare(one) for one in sizes]
        best = [min(_time(call) for call in [call] * repeats) for call in calls]
        factors = [after / before for before, after in pairwise(best)]
        fields = {"base": getattr(size, axis), "seconds": best, "factors": factors}
        fields |= {"size": vars(size), "repeats": repeats}
        found.append(records.record("growth", op, axis=AXES[axis], **fields))
    return found


def _long_enough(op: str, size: Size, at_least: float) -> Size:
    """The size with as many rows as it takes to be busy for `at_least` seconds."""
    OPERATIONS[op][0](size)()  # compiles
    while _time(OPERATIONS[op][0](size)) < at_least:
        size = replace(size, rows=2 * size.rows)
    return size


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ops = list(OPERATIONS)
    figure = Figure(figsize=(3.4 * len(ops), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    factors = [2**i for i in range(DOUBLINGS + 1)]
    for place, op in enumerate(ops):
        axes = figure.add_subplot(1, len(ops), place + 1)
        axes.plot(factors, factors, color="0.7", linestyle="--", label="in proportion")
        for row in (row for row in rows if row["op"] == op):
            times = [value / row["seconds"][0] for value in row["seconds"]]
            axes.plot(factors, times, marker="o", label=f"{row['axis']} from {row['base']:,}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_title(op)
        axes.set_xlabel("times as large")
        axes.legend(fontsize="small")
        if place == 0:
            axes.set_ylabel("times as long")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
