"""The operations that take most of the time, each with a plain oracle and faster versions.

`centring` centres embeddings, `nearest` finds keys, `kmeans` fits them, and `sgd` learns values by
gradient descent. Each exists as `oracle` (plain torch, any device) and `cpu` (compiled by numba),
and all but `centring` as `triton` (CUDA). `distances` and `products`, for a few inputs, are for the
CPU only, and need no torch.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

from dkvb._support.validation import one_of, positive_int

BACKENDS = ("oracle", "cpu", "triton")
threads: int | None = None  # that compiled CPU kernels run in; None: `count_threads` says how many


def set_threads(n: int | None) -> None:
    """Set how many threads compiled CPU kernels run in; None: as many as torch uses."""
    global threads
    threads = None if n is None else positive_int("n", n)


def count_threads() -> int:
    """Return in how many threads compiled CPU kernels run: unless that was set, as many as torch
    uses; where torch is not in use, OMP_NUM_THREADS, or one for each core."""
    if threads is not None:
        return threads
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if of_torch is not None:
        return int(of_torch())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else _count_cores()


def _count_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


@cache
def _installed(package: str) -> bool:
    return find_spec(package) is not None


@cache
def choose(device: Any, backend: str | None = None) -> str:
    """The backend for tensors on `device`: the one asked for, else the fastest that can run.

    CUDA tensors go to `triton`, CPU tensors to `cpu`; where the package it needs is not installed,
    and on any other device, the `oracle` runs.

    >>> choose("cpu", "oracle")
    'oracle'
    """
    kind = str(device).partition(":")[0]
    if backend is None:
        if kind == "cuda" and _installed("triton"):
            return "triton"
        return "cpu" if kind == "cpu" and _installed("numba") else "oracle"
    one_of("backend", backend, BACKENDS)
    if backend == "cpu" and (kind != "cpu" or not _installed("numba")):
        raise ValueError(
            f"backend: 'cpu' needs tensors on the CPU and the package numba; got {kind!r} tensors, "
            f"numba {'installed' if _installed('numba') else 'missing'}; use backend=None"
        )
    return backend
