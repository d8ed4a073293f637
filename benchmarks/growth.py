"""Growth of time when rows, codebooks, pairs and classes are doubled, one at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks import limits, records
from benchmarks.cpu import alternate
from benchmarks.problem import LEARNING_RATE, SMOOTHING, Size, doubled, embeddings, sampled_keys
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.kernels.hashing import epoch_orders
from dkvb.kernels.sgd import descend

# Tables that fit a cache and tables that do not. Rows are doubled until a call is long enough.
BASES = {
    "64x1024": Size("64x1024", n_codebooks=64, n_pairs=1024, width=512, rows=1024),
    "256x4096": Size("256x4096", n_codebooks=256, n_pairs=4096, width=512, rows=1024, epochs=5),
}
LIMIT = 2.2
DOUBLINGS = 2
AT_LEAST = 0.25  # seconds of a call at the base
REPEATS = 7
BUDGET = 16.0  # seconds that the calls of one size may take, if these are enough for three
# Keys are fitted to more rows than the others see: pairs that are doubled need as many rows, and
# one row in ten is held out.
FIT_ROWS = 10
AXES = {"rows": "n", "n_codebooks": "codebooks", "n_pairs": "pairs", "n_classes": "classes"}


def _snap(size: Size) -> Callable[[], Any]:
    keys, x = sampled_keys(size), embeddings(size.rows, size.width)
    return lambda: keys.codes(x)


def _descend(size: Size) -> Callable[[], Any]:
    shape = (size.n_codebooks, size.n_pairs, size.n_classes)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(size.n_pairs, (size.rows, size.n_codebooks), generator=generator)
    codes = codes.to(torch.uint16)  # as `Keys.codes` gives them
    y = torch.randint(size.n_classes, (size.rows,), generator=generator)
    orders, values = epoch_orders(size.rows, 0, 0, size.epochs), torch.zeros(shape)
    return lambda: descend(values, codes, y, orders, size.batch, LEARNING_RATE, SMOOTHING)


def _lines(size: Size) -> Callable[[], Any]:
    """The cache lines that SGD reads and changes, in a loop that does nothing else."""
    lines = limits.lines_of_a_step(size)
    call = limits.random_lines(limits.table_of(size), lines, limits.STEPS)
    repeats = -(-size.steps // limits.STEPS)
    return lambda: [call() for _ in range(repeats)]


def _fit(size: Size) -> Callable[[], Any]:
    x = embeddings(FIT_ROWS * size.rows, size.width)
    return lambda: fit_keys(
        x,
        preset="paper",
        n_codebooks=size.n_codebooks,
        n_pairs=size.n_pairs,
        key_dim=size.key_dim,
        epochs=1,
    )


@dataclass(frozen=True)
class Operation:
    """What is timed, and which numbers of its size are doubled how often."""

    prepare: Callable[[Size], Callable[[], Any]]
    axes: tuple[str, ...]
    doublings: int = DOUBLINGS
    judged: bool = True


OPERATIONS = {
    "assign": Operation(_snap, ("rows", "n_codebooks", "n_pairs")),
    "SGD": Operation(_descend, ("rows", "n_codebooks", "n_pairs", "n_classes")),
    "lines": Operation(_lines, ("n_codebooks",), judged=False),
    "fit_keys": Operation(_fit, ("rows", "n_codebooks", "n_pairs"), doublings=1),
}


def run(
    out: Path,
    plot: Path,
    sizes: Sequence[str] = tuple(BASES),
    anyway: bool = False,
    at_least: float = AT_LEAST,
    repeats: int = REPEATS,
    bases: Mapping[str, Size] = BASES,
) -> int:
    """Measure, append to `out`, draw `plot`, print a table; 1 if a doubling costs too much or the
    machine is busy."""
    busy = None if anyway else records.quiet()
    if busy:
        print(busy)
        return 1
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = [
        row
        for name in sizes
        for op in OPERATIONS
        for row in measure(op, _long_enough(op, bases[name], at_least), repeats)
    ]
    records.append(out, rows)
    _draw(rows, list(sizes), plot)
    records.show(
        f"Time when one number is doubled (at most {LIMIT} times as long)",
        ["<keys", "<operation", "<doubled", "from", "best times", "factors"],
        [
            [
                row["size"]["name"],
                row["op"],
                row["axis"],
                f"{row['base']:,}",
                " → ".join(records.seconds(value) for value in row["seconds"]),
                " ".join(
                    f"{f:.2f}" + (" missed" if _missed(row, f) else "") for f in row["factors"]
                ),
            ]
            for row in rows
        ],
        "lines: a plain loop over as many cache lines in random order as SGD reads and changes, "
        "for comparison; it is not judged. "
        f"{records.cpu_name()}, {torch.get_num_threads()} threads, load average "
        f"{max(row['load'] for row in rows):.1f}, largest factor "
        f"{max(max(row['factors']) for row in rows if OPERATIONS[row['op']].judged):.2f}",
    )
    return int(any(_missed(row, factor) for row in rows for factor in row["factors"]))


def _missed(row: dict[str, Any], factor: float) -> bool:
    return OPERATIONS[row["op"]].judged and factor > LIMIT


def measure(op: str, size: Size, repeats: int) -> list[dict[str, Any]]:
    """One record for each number that is doubled."""
    operation = OPERATIONS[op]
    chains = {}
    for axis in operation.axes:
        chain = [size]
        for _ in range(operation.doublings):
            chain.append(doubled(chain[-1], axis))
        chains[axis] = chain
    # In turns, so that a slow spell of the machine meets all sizes; the base is timed once.
    sizes = list(dict.fromkeys(one for chain in chains.values() for one in chain))
    taken = alternate([operation.prepare(one) for one in sizes], repeats, BUDGET)
    # The best of more runs would make a smaller size look faster.
    repeats = min(map(len, taken))
    seconds = {one: min(times[:repeats]) for one, times in zip(sizes, taken, strict=True)}
    found = []
    for axis, chain in chains.items():
        best = [seconds[one] for one in chain]
        factors = [after / before for before, after in pairwise(best)]
        fields = {"base": getattr(size, axis), "seconds": best, "factors": factors}
        fields |= {"size": vars(size), "repeats": repeats}
        found.append(records.record("growth", op, axis=AXES[axis], **fields))
    return found


def _long_enough(op: str, size: Size, at_least: float) -> Size:
    """The size with as many rows as it takes to be busy for `at_least` seconds."""
    while True:
        call = OPERATIONS[op].prepare(size)
        if min(_time(call) for _ in range(2)) >= at_least:  # the first one may compile
            return size
        size = replace(size, rows=2 * size.rows)


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _draw(rows: list[dict[str, Any]], bases: list[str], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [op for op, operation in OPERATIONS.items() if operation.judged]
    figure = Figure(figsize=(3.4 * len(panels), 3.0 * len(bases)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(bases), len(panels), squeeze=False, sharex=True, sharey=True)
    factors = [2**i for i in range(DOUBLINGS + 1)]
    for base, line in zip(bases, grid, strict=True):
        for op, axes in zip(panels, line, strict=True):
            axes.plot(factors, factors, color="0.7", linestyle="--", label="in proportion")
            for row in rows:
                plain = op == "SGD" and row["op"] == "lines"
                if (plain or row["op"] == op) and row["size"]["name"] == base:
                    times = [value / row["seconds"][0] for value in row["seconds"]]
                    label = "plain loop" if plain else f"{row['axis']} from {row['base']:,}"
                    style = {"color": "0.4", "linestyle": ":"} if plain else {"marker": "o"}
                    axes.plot(factors[: len(times)], times, label=label, **style)
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
