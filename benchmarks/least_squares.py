"""How long rule `least_squares` with many pairs takes to learn and answer, on synthetic rows."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks import records
from dkvb import BottleneckClassifier, fit_keys

LIMITS = {"choice": 25.0, "one": 0.5, "many": 8.0, "difference": 1e-6}  # seconds; relative
WAIT = 4  # one row per so many pairs waits before it is added to the sums
STEPS = {
    "choice": "λ chosen and solved",
    "one": "1 more row, and a prediction",
    "many": "{more:,} more rows, and a prediction",
    "refactor": "rows added to the sums and factorised again, once per {wait:,} rows",
    "difference": "difference from a full solve",
}


@dataclass(frozen=True)
class Shape:
    """What is learned; by default what the limits are for."""

    n_codebooks: int = 40
    n_pairs: int = 256
    n_classes: int = 100
    rows: int = 20_000
    more: int = 1_000  # rows learned together later
    width: int = 384
    repeats: int = 5  # of learning one row


def run(shape: Shape, out: Path) -> int:
    """Measure, append to `out`, print a table; 1 if a limit is missed."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    found = measure(shape)
    records.append(out, found)
    M = shape.n_codebooks * shape.n_pairs
    records.show(
        f"least_squares, {M:,} pairs, {shape.n_classes} classes, after {shape.rows:,} rows",
        ["<what", "measured", "limit"],
        [
            [
                STEPS[row["op"]].format(more=shape.more, wait=M // WAIT),
                _shown(row, "value"),
                _shown(row, "limit"),
            ]
            for row in found
        ],
        f"{records.cpu_name()}, {torch.get_num_threads()} threads, "
        f"load average {found[0]['load']:.1f}",
    )
    return int(any(row["missed"] for row in found))


def measure(shape: Shape) -> list[dict[str, Any]]:
    """One record for each limit."""
    n = shape.rows + shape.more + shape.repeats
    X, y = _rows(shape, n)
    sizes = {"n_codebooks": shape.n_codebooks, "n_pairs": shape.n_pairs}
    keys = fit_keys(X[:2000], preset="least_squares", **sizes, epochs=1)
    model = BottleneckClassifier(keys, rule="least_squares")
    model.fit(X[: shape.rows], y[: shape.rows])
    seconds = {"choice": [_time(lambda: model.predict(X[:1]))], "one": [], "many": []}
    place = shape.rows
    for step, size in [("one", 1)] * shape.repeats + [("many", shape.more)]:
        part = slice(place, place + size)
        seconds[step].append(
            _time(lambda part=part: model.partial_fit(X[part], y[part]).predict(X[:1]))
        )
        place += size
    values = {step: statistics.median(times) for step, times in seconds.items()}
    values["difference"] = difference(model)
    # Rows that were learned already will do: with these, more wait than may.
    again = slice(0, shape.n_codebooks * shape.n_pairs // WAIT)
    values["refactor"] = _time(lambda: model.partial_fit(X[again], y[again]).predict(X[:1]))
    return [
        records.record(
            "least-squares",
            op,
            value=value,
            limit=LIMITS.get(op),
            missed=op in LIMITS and value > LIMITS[op],
            shape=vars(shape),
            seconds=seconds.get(op),
        )
        for op, value in values.items()
    ]


def difference(model: BottleneckClassifier) -> float:
    """‖V − V*‖ / ‖V*‖ for V* from a dense solve with the same λ."""
    state = model.rule_.state_
    solution = state.unweighted
    gram, cross = (_dense(state.sums, name) for name in ("gram", "cross"))
    gram.diagonal().add_(solution.lam * float(gram.trace()) / len(gram))
    expected = torch.cholesky_solve(cross, torch.linalg.cholesky(gram))
    return float((solution.values - expected).norm() / expected.norm())


def _dense(sums: Any, name: str) -> Tensor:
    total: Tensor = getattr(sums.learned.dense(), name)
    total += getattr(sums.held.dense(), name)
    return total


def _rows(shape: Shape, n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows around one centre per class, in a few directions."""
    rng = np.random.default_rng(0)
    inner = min(64, shape.width)
    mixing = rng.standard_normal((inner, shape.width), dtype=np.float32) / inner**0.5
    centres = rng.standard_normal((shape.n_classes, inner), dtype=np.float32)
    y = rng.integers(shape.n_classes, size=n)
    hidden = centres[y] + rng.standard_normal((n, inner), dtype=np.float32)
    X = hidden @ mixing + 0.1 * rng.standard_normal((n, shape.width), dtype=np.float32)
    return X.astype(np.float32), y


def _shown(row: dict[str, Any], name: str) -> str:
    if row[name] is None:
        return ""
    if row["op"] == "difference":
        return f"{row[name]:.1e}"
    missed = " missed" if name == "value" and row["missed"] else ""
    return records.seconds(row[name]) + missed


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
