"""How a kernel classifier's times and memory grow with what it has learned.

    python -m benchmarks memory-size [--data X.npz] [--sizes 5000,50000] [--keep examples sums]

For each number of rows and kind of memory, each step in a fresh process: `fit` with all settings
chosen, from a memory map of float32 rows, and `save`; then open the file, predict one row, learn
one row at a time and predict one after each, unlearn one row, and go on. Rows are those of --data
as far as they go, and others like them beyond (see `benchmarks.rows`). Records also hold the time
of all cores (`fit_cpu`, …), which says more where other work shares them.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SIZES = (5_000, 12_000, 50_000, 200_000, 1_000_000)
KEEPS = ("examples", "sums")
CHANGES = 20  # rows that are learned one by one after the first
SPARE = 64  # rows that are not fitted, to ask and to learn
# The most that each figure may be, by number of rows; None: at every number.
LIMITS: dict[str, dict[int | None, float]] = {
    "open_and_predict": {50_000: 2.0, 1_000_000: 10.0},
    "first_learn": {None: 1.0},
    "learn_most": {None: 0.3},
    "fit": {50_000: 60.0, 1_000_000: 600.0},
    "peak_bytes": {50_000: 3e9},
}
SHOWN = (
    ("fit", "fit"),
    ("save", "save"),
    ("import", "import"),
    ("open_and_predict", "open, predict 1"),
    ("first_learn", "learn 1, predict 1: first"),
    ("learn_median", "median"),
    ("learn_most", "most"),
    ("forget", "unlearn 1, predict 1"),
    ("after_forget", "then learn 1"),
)
STEPS = tuple(name for name, _ in SHOWN if name != "import")
ROOT = Path(__file__).parents[1]


# ------------------------------------------------------------------------ in processes of their own
def fit(folder: Path, keep: str) -> dict[str, float]:
    """Fit a classifier to the rows in a folder, and save it there."""
    import numpy as np

    import dkvb
    from benchmarks.peak import anonymous_memory, memory

    X, y = np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy")
    model = dkvb.KernelClassifier(keep=keep)
    with anonymous_memory() as anonymous:
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = memory("VmHWM")
    start = time.perf_counter()
    model.save(folder / "model.safetensors")
    return {
        "fit": seconds,
        "fit_cpu": cpu,
        "save": time.perf_counter() - start,
        "peak_bytes": peak,
        "anonymous_bytes": anonymous[0],
        "file_bytes": (folder / "model.safetensors").stat().st_size,
        "score": model.loo_score_,
        "entries": len(model._state.memory),
        "points": len(model._state.solution),
    }


def use(folder: Path) -> dict[str, float]:
    """Open a saved classifier, predict, learn and unlearn, a row at a time."""
    begun = time.perf_counter()
    import numpy as np

    import dkvb
    from dkvb import KernelClassifier  # noqa: F401  (imported on first use)

    imported = time.perf_counter()
    X, y = np.load(folder / "spare-X.npy"), np.load(folder / "spare-y.npy")
    start = time.perf_counter()
    cpu = time.process_time()
    model = dkvb.load(folder / "model.safetensors")
    opened = time.perf_counter()
    model.predict(X[:1])
    found = {
        "import": imported - begun,
        "open": opened - start,
        "open_and_predict": time.perf_counter() - start,
        "open_and_predict_cpu": time.process_time() - cpu,
    }

    def learn(i: int) -> float:
        start = time.perf_counter()
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        model.predict(X[-1:])
        return time.perf_counter() - start

    cpu = time.process_time()
    found["first_learn"] = learn(0)
    found["first_learn_cpu"] = time.process_time() - cpu
    cpu = time.process_time()
    times = sorted(learn(i) for i in range(1, 1 + CHANGES))
    found |= {"learn_median": times[len(times) // 2], "learn_most": times[-1]}
    found["learn_cpu"] = (time.process_time() - cpu) / CHANGES
    start = time.perf_counter()
    model.forget_samples(X[:1], y[:1])
    model.predict(X[-1:])
    found["forget"] = time.perf_counter() - start
    found["after_forget"] = learn(1 + CHANGES)
    return found


def _in_fresh_process(step: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory_size", step, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# ------------------------------------------------------------------------------------------ results
def measure(folder: Path, n: int, keep: str) -> dict[str, Any]:
    """One record of the rows in a folder."""
    from benchmarks import records

    load = os.getloadavg()[0]
    found = _in_fresh_process("fit", str(folder), keep) | _in_fresh_process("use", str(folder))
    (folder / "model.safetensors").unlink()
    record = records.record("memory-size", "kernel", rows=n, keep=keep, load_before=load, **found)
    return record | {"missed": misses(record)}


def misses(record: dict[str, Any]) -> list[str]:
    """The figures of a record that are above their limits."""
    return [
        name
        for name, limits in LIMITS.items()
        if record[name] > limits.get(record["rows"], limits.get(None, math.inf))
    ]


def slopes(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How each figure grows from one number of rows to the next: the exponent of n."""
    steeper = []
    for before, after in pairwise(found):
        width = math.log(after["rows"] / before["rows"])
        steps = {name: math.log(after[name] / before[name]) / width for name in STEPS}
        steeper.append({"rows": [before["rows"], after["rows"]], **steps})
    return steeper


def write_rows(folder: Path, n: int, data: Path | None, width: int, n_classes: int) -> int:
    """Write n rows, and a few to spare, into a folder; returns how many of them were given."""
    import numpy as np

    from benchmarks.rows import Source, read

    source = Source(None if data is None else read(data), width, n_classes)
    np.save(folder / "y.npy", source.write(folder / "X.npy", n))
    spare = source.block(n, n + SPARE)
    np.save(folder / "spare-X.npy", spare.X)
    np.save(folder / "spare-y.npy", spare.y)
    return min(n, source.n_given)


def run(
    out: Path,
    data: Path | None,
    sizes: tuple[int, ...],
    keeps: tuple[str, ...],
    folder: Path | None = None,
    shape: tuple[int, int] = (2048, 100),
) -> int:
    """Measure, print a table for each kind of memory, write records; 1 if a limit is not kept."""
    from benchmarks import records

    found: list[dict[str, Any]] = []
    for n in sorted(sizes):
        with TemporaryDirectory(dir=folder) as name:
            given = write_rows(Path(name), n, data, *shape)
            for keep in keeps:
                record = measure(Path(name), n, keep) | {"given_rows": given}
                records.append(out, [record])
                found.append(record)
                print(f"{n:,} {keep}: fit {records.seconds(record['fit'])}", flush=True)
    for keep in keeps:
        _show(keep, [one for one in found if one["keep"] == keep])
    missed = [one for one in found if one["missed"]]
    for one in missed:
        print(f"MISSED at {one['rows']:,}, {one['keep']}: {', '.join(one['missed'])}")
    return int(bool(missed))


def _show(keep: str, found: list[dict[str, Any]]) -> None:
    from benchmarks import records

    def cell(one: dict[str, Any], name: str) -> str:
        text = records.seconds(one[name])
        return text + (" missed" if name in one["missed"] else "")

    rows = [
        [
            f"{one['rows']:,}",
            *(cell(one, name) for name, _ in SHOWN),
            f"{records.megabytes(one['peak_bytes'])}"
            + (" missed" if "peak_bytes" in one["missed"] else ""),
            records.megabytes(one["file_bytes"]),
            f"{one['load_before']:.1f}",
        ]
        for one in found
    ]
    rows += [
        ["exponent"]
        + [f"{step[name]:.2f}" if name in step else "" for name, _ in SHOWN]
        + ["", "", ""]
        for step in slopes(found)
    ]
    records.show(
        f'keep="{keep}"',
        ["rows", *(title for _, title in SHOWN), "peak", "file", "load"],
        rows,
        f"{records.cpu_name()}; peak: resident, with the pages of the memory map that is fitted",
    )


if __name__ == "__main__":
    step, place, *rest = sys.argv[1:]
    print(json.dumps(fit(Path(place), *rest) if step == "fit" else use(Path(place))))
