"""Class-incremental accuracy of a kernel classifier that keeps examples, or sums of them.

    python -m benchmarks memory-accuracy --data FOLDER [--only cifar100 banking77]

FOLDER holds one folder for each data set, as `benchmarks.rows` reads them: `cifar10-resnet50`,
`cifar100-resnet50` and `banking77-minilm`, whose `keys.npz` are unlabelled sentences of other
topics. Problems whose data are not there are skipped. Every model learns class by class, in a
random order, and chooses its settings once at the end; what was learned depends on no order, so
that `fit` with all rows gives the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dkvb
from benchmarks import records
from benchmarks.rows import Rows, read, read_unlabelled

CIFAR10, CIFAR100, BANKING77 = "cifar10-resnet50", "cifar100-resnet50", "banking77-minilm"
KEY_ROWS = 16_384  # of a data set that keys are fitted to
FEW, MANY = 50, 500  # rows per class
TAIL = 100  # times as many rows has the first class as the last
MOST_BYTES = 100_000_000  # of sums


def images(n_pairs: int) -> dict[str, Any]:
    """One codebook of so many keys in the first 256 scaled principal axes."""
    return {
        "n_codebooks": 1,
        "n_pairs": n_pairs,
        "projection": "identity",
        "method": "lloyd",
        "epochs": 5,
        "conditioning": "half-whitened",
        "n_components": 256,
    }


# Twelve codebooks of two keys on one number each: on which side of the middle it lies.
SIDES = {
    "n_codebooks": 12,
    "n_pairs": 2,
    "key_dim": 1,
    "method": "lloyd",
    "epochs": 5,
    "conditioning": "normalised",
}


@dataclass(frozen=True)
class Problem:
    """A data set, what is kept of it, and what has to come out."""

    name: str
    data: str
    keep: str = "examples"
    keys_of: tuple[str, str] | None = None  # a data set, and the start of its files
    keys: dict[str, Any] | None = None  # settings of `fit_keys`
    key_rows: int = KEY_ROWS
    rows: Callable[[int], int] | None = None  # of each class, by its place; None: all
    exact: bool = False  # every example is solved for
    at_least: float | None = None  # accuracy, per cent
    most_cells: int | None = None


def few(place: int) -> int:
    return FEW


def long_tail(place: int) -> int:
    """From 500 rows of the first of 100 classes to 5 of the last."""
    return round(MANY * TAIL ** (-place / 99))


PROBLEMS = (
    Problem("CIFAR-100", CIFAR100, at_least=78.8),
    Problem("CIFAR-10", CIFAR10, at_least=93.1),
    Problem("CIFAR-100, exactly", CIFAR100, exact=True, at_least=81.6),
    Problem("CIFAR-10, exactly", CIFAR10, exact=True, at_least=94.4),
    Problem("CIFAR-100, keys of CIFAR-10", CIFAR100, "sums", (CIFAR10, "train"), images(1650),
            at_least=78.5, most_cells=14_000),
    Problem("CIFAR-10, keys of its own", CIFAR10, "sums", (CIFAR10, "train"), images(4096), 50_000,
            at_least=92.9),
    Problem("CIFAR-100, long tail, keys of CIFAR-10", CIFAR100, "sums", (CIFAR10, "train"),
            images(1650), rows=long_tail, at_least=66.2, most_cells=14_000),
    Problem("CIFAR-100, 50 per class, keys of CIFAR-10", CIFAR100, "sums", (CIFAR10, "train"),
            images(2048), rows=few, at_least=70.0),
    Problem("BANKING77, keys of HWU64", BANKING77, "sums", (BANKING77, "keys"), SIDES,
            at_least=93.4, most_cells=6_000),
    Problem("BANKING77", BANKING77),
    Problem("CIFAR-100, no keys", CIFAR100, "sums"),
    Problem("CIFAR-10, no keys", CIFAR10, "sums"),
    Problem("BANKING77, no keys", BANKING77, "sums"),
    Problem("CIFAR-100, long tail", CIFAR100, rows=long_tail),
    Problem("CIFAR-100, 50 per class", CIFAR100, rows=few),
)  # fmt: skip


def fitted_keys(data: Path, problem: Problem) -> Any:
    """The keys of a problem; None where it has none."""
    if problem.keys_of is None or problem.keys is None:
        return None
    name, split = problem.keys_of
    folder = data / name
    X = read(folder, split).X if split == "train" else read_unlabelled(folder / f"{split}.npz")
    return dkvb.fit_keys(X[: problem.key_rows], **problem.keys)


def learned(
    rows: Rows, keep: str, keys: Any, exact: bool = False, seed: int = 0
) -> dkvb.KernelClassifier:
    """A classifier that has learned class by class."""
    model = dkvb.KernelClassifier(keep, keys=keys).begin(rows.X.shape[1])
    for label in np.random.default_rng(seed).permutation(np.unique(rows.y)):
        mine = rows[rows.y == label]
        model.partial_fit(mine.X, mine.y)
    return model.tune(exact=exact, progress=True)


def measure(data: Path, problem: Problem) -> dict[str, Any]:
    """One record: accuracy, and what is kept for it."""
    rows, test = read(data / problem.data), read(data / problem.data, "test")
    rows = rows if problem.rows is None else rows.first_of_each(problem.rows)
    load, keys = os.getloadavg()[0], fitted_keys(data, problem)
    start = time.perf_counter()
    model = learned(rows, problem.keep, keys, problem.exact)
    seconds = time.perf_counter() - start
    found = {
        "rows": len(rows),
        "accuracy": 100 * float(np.mean(model.predict(test.X) == test.y)),
        "said": 100 * model.loo_score_,
        "said_kind": model.loo_kind_,
        "setting": "/".join(str(value) for value in list(model.setting_.values())[:3]),
        "entries": len(model._state.memory),
        "single_row_share": model.single_row_share_,
        "state_bytes": sum(array.nbytes for array in model.state_arrays().values()),
        "seconds": seconds,
        "load_before": load,
    }
    return records.record(
        "memory-accuracy",
        problem.name,
        keep=problem.keep,
        at_least=problem.at_least,
        most_cells=problem.most_cells,
        **found,
        missed=misses(problem, found),
    )


def misses(problem: Problem, found: dict[str, Any]) -> list[str]:
    """What a problem asks for and did not get."""
    asked = {
        "accuracy": problem.at_least is None or found["accuracy"] >= problem.at_least,
        "entries": problem.most_cells is None or found["entries"] <= problem.most_cells,
        "state_bytes": problem.keep == "examples" or found["state_bytes"] <= MOST_BYTES,
    }
    return [name for name, met in asked.items() if not met]


def chosen(data: Path, only: list[str]) -> Iterator[Problem]:
    """The problems whose data are there, and whose names contain one of `only`."""
    for problem in PROBLEMS:
        if only and not any(part.lower() in problem.name.lower() for part in only):
            continue
        folders = {problem.data, *(problem.keys_of or ())[:1]}
        missing = [name for name in sorted(folders) if not (data / name).is_dir()]
        if missing:
            print(f"{problem.name}: {', '.join(missing)} not in {data}, skipped", flush=True)
        else:
            yield problem


def run(out: Path, data: Path, only: list[str]) -> int:
    """Measure, print a table, write records; 1 where a problem misses what it asks for."""
    found = []
    for problem in chosen(data, only):
        found.append(measure(data, problem))
        records.append(out, found[-1:])
        print(f"{problem.name}, {problem.keep}: {found[-1]['accuracy']:.2f}", flush=True)
    records.show(
        "Learned class by class; fit with all rows gives the same, since no order matters",
        ["<data", "<keeps", "rows", "accuracy", "at least", "says itself", "entries", "of one row",
         "state", "seconds", "<setting", "<missed"],
        [_line(one) for one in found],
        f"per cent; {records.cpu_name()}",
    )  # fmt: skip
    return int(any(one["missed"] for one in found))


def _line(one: dict[str, Any]) -> list[str]:
    return [
        one["op"],
        one["keep"],
        f"{one['rows']:,}",
        f"{one['accuracy']:.2f}",
        "" if one["at_least"] is None else f"{one['at_least']:.1f}",
        f"{one['said']:.1f}",
        f"{one['entries']:,}" + (f" ≤ {one['most_cells']:,}" if one["most_cells"] else ""),
        f"{100 * one['single_row_share']:.0f} %",
        records.megabytes(one["state_bytes"]),
        f"{one['seconds']:.0f}",
        one["setting"],
        ", ".join(one["missed"]),
    ]
