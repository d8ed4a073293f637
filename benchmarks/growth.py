"""Growth of time when rows, codebooks, pairs and classes are doubled, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks import records
from benchmarks.problem import LEARNING_RATE, SMOOTHING, Size, doubled, embeddings, sampled_keys
from dkvb._support.hashing import epoch_orders
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.kernels.sgd import descend

# Tables that fit a cache and tables that do not.
BASES = (
    Size("64x1024", n_codebooks=64, n_pairs=1024, width=512, rows=1024),
    Size("paper", n_codebooks=256, n_pairs=4096, width=512, rows=1024, epochs=5),
)
LIMIT = 2.3
DOUBLINGS = 2
AXES = {"rows": "n", "n_codebooks": "codebooks", "n_pairs": "pairs", "n_classes": "classes"}


def _snap(size: Size) -> Callable[[], Any]:
    keys, x = sampled_keys(size), embeddings(size.rows, size.width)
    return lambda: keys.codes(x)


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
        x,
        preset="paper",
        n_codebooks=size.n_codebooks,
        n_pairs=size.n_pairs,
        key_dim=size.key_dim,
        epochs=4,
    )


OPERATIONS: dict[str, tuple[Callable[[Size], Callable[[], Any]], tuple[str, ...]]] = {
    "snap": (_snap, ("rows", "n_codebooks", "n_pairs")),
    "SGD": (_descend, ("rows", "n_codebooks", "n_pairs", "n_classes")),
    "fit_keys": (_fit, ("rows", "n_codebooks", "n_pairs")),
}


def run(
    out: Path,
    plot: Path,
    at_least: float = 0.5,
    bases: Sequence[Size] = BASES,
    repeats: int = 3,
) -> int:
    """Measure, append to `out`, draw `plot`, print a table; 1 if a doubling costs too much."""
    rows = [
        row
        for base in bases
        for op in OPERATIONS
        for row in measure(op, _long_enough(op, base, at_least), repeats)
    ]
    records.append(out, rows)
    _draw(rows, [base.name for base in bases], plot)
    records.show(
        f"Time when one number is doubled (at most {LIMIT} times as long)",
        ["<keys", "<operation", "<doubled", "from", "times", "factors"],
        [
            [
                row["size"]["name"],
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
        best = [min(_time(call) for _ in range(repeats)) for call in calls]
        factors = [after / before for before, after in pairwise(best)]
        fields = {"base": getattr(size, axis), "seconds": best, "factors": factors}
        fields |= {"size": vars(size), "repeats": repeats}
        found.append(records.record("growth", op, axis=AXES[axis], **fields))
    return found


def _long_enough(op: str, size: Size, at_least: float) -> Size:
    """The size with as many rows as it takes to be busy for `at_least` seconds."""
    while True:
        call = OPERATIONS[op][0](size)
        if min(_time(call) for _ in range(3)) >= at_least:  # the first one compiles
            return size
        size = replace(size, rows=2 * size.rows)


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _draw(rows: list[dict[str, Any]], bases: list[str], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(OPERATIONS), 3.0 * len(bases)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(bases), len(OPERATIONS), squeeze=False, sharex=True, sharey=True)
    factors = [2**i for i in range(DOUBLINGS + 1)]
    for base, line in zip(bases, grid, strict=True):
        for op, axes in zip(OPERATIONS, line, strict=True):
            axes.plot(factors, factors, color="0.7", linestyle="--", label="in proportion")
            for row in rows:
                if row["op"] == op and row["size"]["name"] == base:
                    times = [value / row["seconds"][0] for value in row["seconds"]]
                    label = f"{row['axis']} from {row['base']:,}"
                    axes.plot(factors, times, marker="o", label=label)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.set_xticks(factors, [f"{factor}×" for factor in factors])
            axes.set_yticks(factors, [f"{factor}×" for factor in factors])
            axes.set_title(f"{op}, {base}", fontsize="medium")
            axes.legend(fontsize="small", frameon=False)
    figure.supxlabel("as large", fontsize="medium")
    figure.supylabel("as long", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
