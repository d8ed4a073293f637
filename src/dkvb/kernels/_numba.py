"""How the compiled CPU kernels are compiled and run on several cores.

Kernels release the interpreter lock and are called from ordinary threads. numba's own parallel
layers are not used: one of them aborts the process when two Python threads call at once, another
when a process forks after the first call. Here a fork leaves the threads behind, and starts its
own.

Compiled code is kept on disk beside the sources (or in the user's cache where that is read-only):
the first call ever costs the time that each kernel states, later processes some milliseconds. The
logger "dkvb.kernels" says so at level INFO when a process begins to compile.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.event import Listener, register
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numpy.typing import DTypeLike, NDArray

from dkvb import kernels
from dkvb.kernels._helpers import all_busy, help_with

F = TypeVar("F", bound=Callable[..., Any])
log = logging.getLogger("dkvb.kernels")

# Sums may be reordered and fused into multiply-adds and NaN does not occur; infinity does (keys
# that must not be chosen), so "ninf" is left out.
_FASTMATH = {"contract", "reassoc", "nsz", "arcp", "nnan"}
_POISON = 1 << 62


@cache
def _sources() -> str:
    """A digest of the sources that go into compiled CPU kernels."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        if path.name != "triton.py":
            digest.update(path.read_bytes())
    return digest.hexdigest()


class _CompilationNotice(Listener):  # type: ignore[misc]  # numba has no types
    """Logs that kernels are compiled, once per process."""

    logged = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.logged and function.__module__.startswith("dkvb."):
            self.logged = True
            log.info("compiling CPU kernels, once per machine and version; takes some seconds")

    def on_end(self, event: Any) -> None:
        pass


register("numba:compile", _CompilationNotice())


def compiled(function: F, in_order: bool = False) -> F:
    """Compile with numba, keeping the result on disk where that can be done; `in_order`: no sum is
    reordered."""
    fastmath = False if in_order else _FASTMATH
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
        # numba recompiles when a function's own file changes; what it calls lies in other files.
        file = dispatcher._cache._cache_file
        file._source_stamp = (file._source_stamp, _sources())
    except (RuntimeError, AttributeError, OSError):  # nowhere to write, or another numba
        dispatcher = numba.njit(**options)(function)
    return cast(F, dispatcher)


def count_workers(tasks: int) -> int:
    """Return in how many threads so many tasks run."""
    return max(1, min(kernels.count_threads(), tasks))


def run(kernel: Callable[..., None], tasks: int, *arguments: Any) -> None:
    """Call kernel(state, worker, workers, *arguments) in up to `kernels.threads` threads.

    Never more threads than there are tasks. `take` hands out tasks from `state`, which the workers
    share. A helper that comes when all tasks are taken is not waited for. An exception in any
    worker is raised here.
    """
    workers = count_workers(tasks)
    state = np.zeros(2 * _LINE, dtype=np.int64)
    helpers: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # no more threads: too many, or the interpreter ends
            for worker in range(1, workers):
                if all_busy():
                    break
                helpers.append(help_with(kernel, workers, state, worker, workers, *arguments))
        kernel(state, 0, workers, *arguments)
    finally:
        begun = [one for one in helpers if not one.cancel()]
        if begun:
            wait_for(begun)
    for one in begun:
        one.result()


def run_together(kernel: Callable[..., None], tasks: int, *arguments: Any) -> None:
    """Call kernel(state, worker, workers, *arguments) in `kernels.threads` threads at once.

    Never more threads than there are tasks. `state` is shared by the workers, all of which `wait`
    for each other. An exception in any of them is raised here.
    """
    workers = count_workers(tasks)
    state = np.zeros(2 * _LINE, dtype=np.int64)
    if workers == 1:
        kernel(state, 0, 1, *arguments)
        return
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            kernel(state, worker, workers, *arguments)
        except BaseException as error:
            errors.append(error)
            state[_ARRIVED] = _POISON  # lets the others leave `wait`

    helpers: list[Future[None]] = []
    try:
        helpers.extend(help_with(work, workers, worker) for worker in range(1, workers))
        work(0)
    except BaseException:  # a thread that cannot be started: the others must not wait for it
        state[_ARRIVED] = _POISON
        raise
    finally:
        if helpers:
            wait_for(helpers)
    if errors:
        raise errors[0]


LINE_BYTES = 64  # of a cache line
_LINE = 8  # int64 numbers in a cache line: the two counters must not share one
_TAKEN, _ARRIVED = 0, _LINE
SPINS = 1 << 14  # looks at the counter, some microseconds, before another thread may run instead


@intrinsic
def fetch_add(typing_context: Any, counters: Any, index: Any, amount: Any) -> Any:
    """Add to counters[index], atomically, and return what stood there."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = make_array(sig.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "seq_cst")

    return types.int64(counters, types.int64, types.int64), generate


@intrinsic
def read_atomic(typing_context: Any, numbers: Any, index: Any) -> Any:
    """Read numbers[index], atomically."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place, size = _place(context, builder, sig, args)
        return builder.load_atomic(place, "seq_cst", size, typ=ir.IntType(8 * size))

    return numbers.dtype(numbers, types.int64), generate


@intrinsic
def write_atomic(typing_context: Any, numbers: Any, index: Any, value: Any) -> Any:
    """Write numbers[index], atomically: who reads it has what was written before."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place, size = _place(context, builder, sig, args)
        builder.store_atomic(args[2], place, "seq_cst", size)
        return context.get_dummy_value()

    return types.void(numbers, types.int64, numbers.dtype), generate


def _place(context: Any, builder: Any, sig: Any, args: Any) -> tuple[Any, int]:
    """Where numbers[index] is, of the first two arguments, and how many bytes it has."""
    data = make_array(sig.args[0])(context, builder, args[0]).data
    return builder.gep(data, [args[1]]), sig.args[0].dtype.bitwidth // 8


# Lets another thread run on this core; matters when there are more threads than cores.
_give_way = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32()
)


@compiled
def take(state: NDArray[np.int64]) -> int:
    """The next task: 0, 1, 2 … over all workers together."""
    return int(fetch_add(state, _TAKEN, 1))


@compiled
def wait(state: NDArray[np.int64], meeting: int, workers: int) -> None:
    """Wait until all workers have come to meeting number 1, 2, 3 …"""
    if workers == 1:
        return
    fetch_add(state, _ARRIVED, 1)
    spins = 0
    while read_atomic(state, _ARRIVED) < meeting * workers:
        spins += 1
        if spins > SPINS:
            _give_way()


def huge_empty(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialised array that begins at a cache line, for access in random order.

    Linux gives huge pages to those who ask. numpy does for large arrays, torch does not; without,
    the processor looks up the page of nearly every line it reads.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % LINE_BYTES
    return raw[start : start + size].view(dtype).reshape(shape)


def check_codes(codes: NDArray[Any], columns: NDArray[Any], table: Any) -> None:
    """Refuse codes (n, C) and columns (n,) that point outside a table (C, K, Y): compiled code
    would read and write there.
    """
    n_codebooks, n_pairs, n_columns = table.shape
    if codes.ndim != 2 or codes.shape[1] != n_codebooks:
        raise ValueError(f"codes: expected shape (n, {n_codebooks}); got {tuple(codes.shape)}")
    if columns.shape != codes.shape[:1]:
        raise ValueError(f"columns: expected one for each of {len(codes)} rows; got {len(columns)}")
    for name, array, size in (("codes", codes, n_pairs), ("columns", columns, n_columns)):
        if array.size and not 0 <= array.min() <= array.max() < size:
            raise ValueError(
                f"{name}: expected 0 to {size - 1}; got {array.min()} to {array.max()}; "
                "were they made for another table?"
            )
