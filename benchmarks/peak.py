"""How much memory an operation takes, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders import contenders, operation
from benchmarks.problem import SIZES, TINY, make_problem

STATUS = Path("/proc/self/status")


def memory(field: str) -> int:
    """Bytes of this process: VmRSS (now), VmHWM (highest), RssAnon (now, without files)."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"{STATUS} has no field {field}; memory is measured on Linux only")


def measure(contender: str, op: str, size: str) -> int:
    """The highest memory while `op` runs: model and data included, imports and thread pools not."""
    kind = next(kind for kind in contenders() if kind.name == contender)
    operation(kind(make_problem(TINY)), op)()
    imported = memory("VmRSS")
    runner = kind(make_problem(SIZES[size]))
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest memory so far
    operation(runner, op)()
    return memory("VmHWM") - imported


def peak_bytes(contender: str, op: str, size: str) -> int | None:
    """`measure` in a fresh process; None where the operating system does not say."""
    if not STATUS.exists():
        return None
    command = [sys.executable, "-m", "benchmarks.peak", contender, op, size]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return int(json.loads(done.stdout))


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
