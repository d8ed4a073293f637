"""How much memory operations take, in a process of their own."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.contenders import OPERATIONS, contenders, operation
from benchmarks.problem import SIZES, TINY, make_problem

STATUS = Path("/proc/self/status")


def memory(field: str) -> int:
    """Bytes of this process: VmRSS (now), VmHWM (highest), RssAnon (now, without files)."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"{STATUS} has no field {field}; memory is measured on Linux only")


def measure(contender: str, size: str, *ops: str) -> dict[str, int]:
    """The highest memory while each operation runs, from a runner of its own: model and data
    included, imports and thread pools not. One epoch and one batch take as much as many."""
    kind = next(kind for kind in contenders() if kind.name == contender)
    for op in ops:
        operation(kind(make_problem(TINY)), op)()
    _return_freed()
    imported = memory("VmRSS")
    problem = make_problem(replace(SIZES[size], epochs=1, key_epochs=1))
    highest = {}
    for op in ops:
        runner = kind(problem)
        _return_freed()
        Path("/proc/self/clear_refs").write_text("5")  # forget the highest memory so far
        operation(runner, op)()
        highest[op] = memory("VmHWM") - imported
        # Without what the operation has kept for the next one.
        projection = replace(problem.keys.projection)
        problem = replace(problem, keys=replace(problem.keys, projection=projection))
    return highest


def _return_freed() -> None:
    """Give freed memory back to the operating system, where the C library can."""
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_bytes(contender: str, size: str, ops: Sequence[str] = OPERATIONS) -> dict[str, int]:
    """`measure` in a fresh process; empty where the operating system does not say."""
    if not STATUS.exists():
        return {}
    command = [sys.executable, "-m", "benchmarks.peak", contender, size, *ops]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


@contextmanager
def anonymous_memory() -> Iterator[list[int]]:
    """Watch RssAnon; afterwards the list holds its highest value."""
    highest = [memory("RssAnon")]
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            highest[0] = max(highest[0], memory("RssAnon"))
            time.sleep(0.005)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield highest
    finally:
        done.set()
        watcher.join()


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
