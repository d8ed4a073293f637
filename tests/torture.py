"""All parts of `make torture`: `python -m tests.torture [--seed 1] [--jobs 2]`.

Each part is a program of its own with a seed of its own. The longest start first. One line per part
says what was tried; what a part that failed printed follows, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
MEMORY = "/dev/shm"  # nobody pulls the plug: files need no disk


class Part(NamedTuple):
    """A program, and about how many seconds of one processor it takes."""

    seconds: int
    name: str
    command: tuple[str, ...]  # arguments of Python


def parts(seed: int) -> list[Part]:
    """Every part, seeded."""

    def part(seconds: int, name: str, module: str, option: str, value: str, i: int = 0) -> Part:
        command = ("-m", f"tests.{module}", option, value, "--seed", str(seed + i))
        return Part(seconds, name, command)

    faults, kills = "store.faults", "store.kills"
    files, service = "support.files", "serve.torture"
    disk = (f"tests/store/test_{name}.py" for name in ("full_disk", "threads"))
    return [
        *(
            part(seconds, f"faults: {names}", faults, "--names", names)
            for seconds, names in (
                (45, "kernel"),
                (30, "bottleneck,prototypes"),
            )
        ),
        part(30, "spoilt models", f"{files}.fuzz", "--files", "10000"),
        *(part(70, "other spoilt files", f"{files}.spoilt", "--files", "5200", i) for i in (0, 1)),
        *(part(60, "kills: commands", kills, "--kills", "100", i) for i in (0, 1)),
        part(60, "kills: two writers", "store.contention", "--kills", "200"),
        part(90, "service: kills", service, "--parts", "kills,disk"),
        part(100, "service: memory", service, "--parts", "memory"),
        Part(20, "full disk, threads", ("-m", "pytest", "-q", "-p", "no:cacheprovider", *disk)),
    ]


def run(part: Part) -> tuple[Part, float, subprocess.CompletedProcess[str]]:
    """The part, how long it took, and how it ended."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    if os.access(MEMORY, os.W_OK):
        environment["TMPDIR"] = MEMORY
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *part.command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    return part, time.perf_counter() - start, done


def summary(stdout: str) -> str:
    """What a part printed, in one line."""
    try:
        report: dict[str, Any] = json.loads(stdout)
    except ValueError:
        return stdout.strip().rpartition("\n")[2]
    counts = report.pop("acknowledged", {}) if isinstance(report.get("acknowledged"), dict) else {}
    shown = {k: v for k, v in {**report, **counts}.items() if isinstance(v, int | float)}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if key != "seconds")


def torture(chosen: Sequence[Part], jobs: int) -> bool:
    """Run parts, so many at a time, and print a line for each; whether all went well."""
    start, failed = time.perf_counter(), []
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(run, part) for part in sorted(chosen, reverse=True)]
        for future in as_completed(running):
            part, seconds, done = future.result()
            said = "FAILED" if done.returncode else "ok"
            _print(f"{part.name:28} {said:6} {seconds:6.1f} s  {summary(done.stdout)}")
            if done.returncode:
                failed.append(part.name)
                _print(done.stdout + done.stderr)
                _print(f"repeat it: python {' '.join(part.command)}")
    total = time.perf_counter() - start
    _print(f"{len(chosen)} parts in {total:.0f} s; failed: {', '.join(failed) or 'none'}")
    return not failed


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="parts with this in their names")
    options = parser.parse_args()
    chosen = [part for part in parts(options.seed) if options.only in part.name]
    sys.exit(not torture(chosen, options.jobs))


if __name__ == "__main__":
    main()
