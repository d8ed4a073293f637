"""What the machine can do at best, measured beside the operations, and the limit of each of them.

Matrix products are torch's own, streaming is a copy by torch. Random cache lines are read and
changed by a loop of numba that shares no code with dkvb.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch

from benchmarks.problem import Size

LINE = 16  # float32 numbers in a cache line of 64 bytes
LINE_BYTES = 64
REPEATS = 5
STEPS = 20  # whose lines are visited in one call
# How much of its limit each operation should reach.
SHARES = {"nearest": 0.4, "sgd-step": 0.5, "key-init": 0.4}


@dataclass(frozen=True)
class Machine:
    """Rates of all threads together, best of a few runs."""

    float32: float  # operations a second in matrix products
    float64: float
    copied: float  # bytes a second, read and written together
    random_lines: float  # seconds to read a random cache line, and to change it in a second pass


@dataclass(frozen=True)
class Limit:
    """The least time that an operation could take on this machine, and why."""

    seconds: float
    what: str


def limits(size: Size, machine: Machine) -> dict[str, Limit]:
    """The limit of each operation, by its name.

    An evaluation batch is two matrix products, of rows with the projection and of heads with keys,
    both counted in float32. An SGD step reads and writes one cache line for each row and codebook,
    counted at the speed of a copy; what stays in a cache is faster. A batch of key initialisation
    is the product of heads with keys alone.
    """
    search = 2.0 * size.batch * size.n_codebooks * size.n_pairs * size.key_dim
    projection = 2.0 * size.batch * size.width * size.n_codebooks * size.key_dim
    nearest = (search + projection) / machine.float32
    step = 2.0 * LINE_BYTES * lines_of_a_step(size) / machine.copied
    batches = size.rows / size.batch
    return {
        "nearest": Limit(nearest, "products, float32"),
        "sgd-step": Limit(step, "cache lines, copied"),
        "20-epochs": Limit(batches * nearest + size.steps * step, "products and lines"),
        "key-init": Limit(search / machine.float32, "products, float32"),
    }


def lines_of_a_step(size: Size) -> int:
    """Cache lines that an SGD step reads and writes: one value for each row and codebook."""
    return size.batch * size.n_codebooks * -(-size.n_classes // LINE)


def measure(size: Size, n: int = 2048, numbers: int = 1 << 26) -> Machine:
    """Measure this machine with as many threads as torch uses: products of matrices (n, n), copies
    of so many numbers, and lines of a table of this size."""
    lines = lines_of_a_step(size)
    return Machine(
        float32=_product_rate(torch.float32, n),
        float64=_product_rate(torch.float64, n),
        copied=_copy_rate(numbers),
        random_lines=_best(random_lines(table_of(size), lines, STEPS)) / (STEPS * lines),
    )


def _best(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of a few calls, after one that is not counted."""
    taken = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def _product_rate(dtype: torch.dtype, n: int) -> float:
    a, b = torch.rand(n, n, dtype=dtype), torch.rand(n, n, dtype=dtype)
    out = torch.empty_like(a)
    return 2.0 * n**3 / _best(lambda: torch.mm(a, b, out=out))


def _copy_rate(numbers: int) -> float:
    source, target = torch.ones(numbers), torch.zeros(numbers)
    return 8.0 * numbers / _best(lambda: target.copy_(source))


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _read_then_add(table: Any, steps: Any) -> float:
    """Sum one number of each line that a step names, then add to them: reading a number takes the
    whole line from memory, and arithmetic would only hide how long that takes."""
    total = np.float32(0)
    for step in range(steps.shape[0]):
        for i in range(steps.shape[1]):
            total += table[steps[step, i], 0]
        for i in range(steps.shape[1]):
            table[steps[step, i], 0] += np.float32(1)
    return total


def random_lines(table: Any, lines: int, n_steps: int) -> Callable[[], Any]:
    """A call that reads and changes so many lines of a table, in random order, for some steps;
    every thread has a part of the table to itself."""
    workers = min(torch.get_num_threads(), len(os.sched_getaffinity(0)))
    parts = np.array_split(table, workers)
    rng = np.random.default_rng(0)
    shape = n_steps, lines // workers
    steps = [rng.integers(len(part), size=shape, dtype=np.uint32) for part in parts]
    pool = ThreadPoolExecutor(workers)
    return lambda: list(pool.map(_read_then_add, parts, steps))


def table_of(size: Size) -> Any:
    """The cache lines (lines, LINE) that values of this size take, all zero."""
    return np.zeros((size.n_codebooks * size.n_pairs * -(-size.n_classes // LINE), LINE), "f4")
