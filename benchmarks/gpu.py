"""The paper's CIFAR-10 experiment on one CUDA card, from files of embeddings.

Compiling is not counted: everything runs once before it is timed, in calls that compile the same
kernels. Embeddings lie on the card when clocks start, except where a row says so. With
`device="cpu"` the same code runs small problems without a card.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import records
from benchmarks.problem import LEARNING_RATE, SMOOTHING
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.bottleneck.keys import Keys
from dkvb.bottleneck.values import count_usage, mean_of_fetched
from dkvb.kernels.hashing import epoch_orders
from dkvb.kernels.nearest import build_index, search
from dkvb.kernels.sgd import descend

ORDERS_AT_ONCE = 1 << 27  # row numbers of epochs drawn ahead: 1 GB
SNAP_REPEATS = 5
WARM_UP_EPOCHS = 200  # as many as `descend` needs to choose as it does for all of them
QUICK = 20  # epochs are divided by this

# Seconds on one H200, and the accuracies of the paper's recipe on ResNet50 embeddings.
TARGETS = {
    "key initialisation": 0.8,
    "snapping": 0.055,
    "class-incremental": 2.0,
    "class-incremental, deterministic": 7.0,
    "all runs": 18.0,
}


@dataclass(frozen=True)
class Settings:
    """The paper's, unless a test makes them small."""

    device: str = "cuda"
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    n_codebooks: int = 256
    n_pairs: int = 4096
    key_dim: int = 14
    key_epochs: int = 10
    epochs: int = 2000  # a task, and in all for iid
    classes_a_task: int = 2
    batch: int = 256


@dataclass(frozen=True, eq=False)
class Rows:
    """Embeddings x (n, m) float32 and columns y (n,) int64 on the device."""

    x: Tensor
    y: Tensor

    @staticmethod
    def read(path: Path, device: str) -> Rows:
        """From an .npz file with x and y."""
        with np.load(path, allow_pickle=False) as file:
            x = torch.from_numpy(np.ascontiguousarray(file["x"], dtype=np.float32))
            y = torch.from_numpy(np.unique(file["y"], return_inverse=True)[1].astype(np.int64))
        return Rows(x.to(device), y.to(device))


class Bench:
    """Collects timed rows."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cuda = torch.device(settings.device).type == "cuda"
        self.name = torch.cuda.get_device_name(settings.device) if self.cuda else "CPU"
        self.rows: list[dict[str, Any]] = []

    def synchronise(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    @contextmanager
    def timed(self, op: str, note: str = "", **fields: Any) -> Iterator[dict[str, Any]]:
        """Time the block into a new row, which the block may add to."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        row: dict[str, Any] = {"device": self.name, "note": note, **fields}
        self.synchronise()
        start = time.perf_counter()
        yield row
        self.synchronise()
        row.setdefault("seconds", time.perf_counter() - start)
        row["peak_bytes"] = torch.cuda.max_memory_allocated() if self.cuda else None
        self.rows.append(records.record("gpu", op, **row))


def run(settings: Settings, train: Path, test: Path, keys: Path, out: Path, quick: bool) -> int:
    """Measure, append to `out`, print a table."""
    bench = Bench(settings)
    device = settings.device
    measure(bench, Rows.read(train, device), Rows.read(test, device), Rows.read(keys, device))
    for row in bench.rows:
        row["quick"] = quick
    records.append(out, bench.rows)
    _show(bench, quick)
    return 0


def measure(bench: Bench, train: Rows, test: Rows, key_rows: Rows) -> None:
    """Everything, in the order in which a user would do it."""
    keys = _keys(bench, key_rows.x)
    codes = _snap(bench, keys, train, test)
    ours = len(bench.settings.seeds)
    tasks = [_tasks(seed, train.y, bench.settings) for seed in bench.settings.seeds]
    everything = torch.arange(len(train.y), device=train.y.device)
    used = torch.zeros(keys.keys.shape[:2], dtype=torch.int64, device=keys.device)
    count_usage(used, codes)
    # Every run has seen all rows by its end, so all have the same active pairs.
    with bench.timed("evaluation", f"{len(test.y):,} test rows among the active pairs"):
        test_codes = keys.codes(test.x, active=used > 0)

    def learn(op: str, schedules: list[list[Tensor]], note: str) -> float:
        values = torch.zeros(
            (len(schedules), *keys.keys.shape[:2], int(train.y.max()) + 1), device=keys.device
        )
        _train(bench, values, codes, train.y, schedules, warm_up=True)
        values.zero_()
        with bench.timed(op, note) as row:
            steps = _train(bench, values, codes, train.y, schedules)
            row |= {"steps": steps}
        total = float(bench.rows[-1]["seconds"])
        accuracies = [_accuracy(own, test_codes, test.y) for own in values]
        bench.rows[-1] |= {"accuracies": accuracies, "microseconds_a_step": 1e6 * total / steps}
        return total

    note = f"{len(tasks[0])} tasks × {bench.settings.epochs} epochs, "
    learn("class-incremental", tasks[:1], note + "one seed")
    if bench.cuda:
        torch.use_deterministic_algorithms(True)
        learn("class-incremental, deterministic", tasks[:1], note + "one seed")
        torch.use_deterministic_algorithms(False)
    total = learn(f"class-incremental × {ours}", tasks, note + "trained together")
    iid = [[everything]] * ours
    total += learn(f"iid × {ours}", iid, f"{bench.settings.epochs} epochs, trained together")
    with bench.timed("all runs", "the two rows above together") as row:
        row["seconds"] = total


def _keys(bench: Bench, x: Tensor) -> Keys:
    """Key initialisation, after one epoch of it that compiles."""
    s = bench.settings

    def fit(epochs: int) -> Keys:
        return fit_keys(
            x,
            preset="paper",
            n_codebooks=s.n_codebooks,
            n_pairs=s.n_pairs,
            key_dim=s.key_dim,
            epochs=epochs,
            batch_size=s.batch,
            random_state=1,
            device=s.device,
        )

    with bench.timed("key initialisation, first call", "1 epoch, with compiling"):
        fit(1)
    with bench.timed("key initialisation", f"{s.key_epochs} epochs × {len(x):,} rows"):
        return fit(s.key_epochs)


def _snap(bench: Bench, keys: Keys, train: Rows, test: Rows) -> Tensor:
    """Codes (n, C) of the training rows; times those of training and test rows together."""
    both = torch.cat([train.x, test.x])
    with bench.timed("snapping, first call", "with compiling"):
        keys.codes(both)
    with bench.timed("snapping", f"{len(both):,} rows, median of {SNAP_REPEATS}") as row:
        row["seconds"] = _median(bench, lambda: keys.codes(both))
    bench.rows[-1]["decided_again"] = _decided_again(keys, both)
    if bench.cuda:
        host = both.cpu().numpy()
        with bench.timed("snapping from the host", "rows in ordinary memory, checked there") as row:
            row["seconds"] = _median(bench, lambda: keys.codes(host))
    return keys.codes(train.x).contiguous()


def _median(bench: Bench, call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(SNAP_REPEATS):
        bench.synchronise()
        start = time.perf_counter()
        call()
        bench.synchronise()
        taken.append(time.perf_counter() - start)
    return median(taken)


def _decided_again(keys: Keys, x: Tensor) -> float:
    """The share of codes that float32 cannot be sure of."""
    index = build_index(keys.keys, keys.first_of_equals)
    unsure = 0
    for part in x.split(4096):
        rows = keys.conditioning.with_error(keys.conditioning.centred(part))
        heads, error = keys.projection.with_error(*rows)
        unsure += int(search(index, heads, 1, error)[1].sum())
    return unsure / (len(x) * keys.n_codebooks)


def _tasks(seed: int, y: Tensor, settings: Settings) -> list[Tensor]:
    """The rows of each task: classes in the order that the paper's code draws from the seed."""
    classes = list(range(int(y.max()) + 1))
    random.Random(seed).shuffle(classes)
    step = settings.classes_a_task
    groups = [classes[i : i + step] for i in range(0, len(classes), step)]
    return [torch.isin(y, torch.tensor(group, device=y.device)).nonzero()[:, 0] for group in groups]


def _train(
    bench: Bench,
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    schedules: list[list[Tensor]],
    warm_up: bool = False,
) -> int:
    """Descend on values (runs, C, K, Y), task by task, all runs together.

    Returns the steps, of all runs together. To warm up, a few epochs of the first task are enough.
    """
    s = bench.settings
    seeds = s.seeds[: len(schedules)]
    steps = 0
    for task, rows in enumerate(zip(*schedules, strict=True)):
        n = len(rows[0])
        if any(len(own) != n for own in rows):
            raise ValueError("train: expected as many rows of every class, to train seeds together")
        if all(own is rows[0] for own in rows):  # (runs, n, C)
            own_codes = _take(codes, rows[0]).expand(len(rows), -1, -1)
        else:
            own_codes = torch.stack([_take(codes, own) for own in rows])
        own_y = torch.stack([y[own] for own in rows])  # (runs, n)
        epochs = s.epochs
        if warm_up:
            epochs = min(epochs, WARM_UP_EPOCHS)
        at_once = max(1, ORDERS_AT_ONCE // (n * len(rows)))
        for first in range(0, epochs, at_once):
            count = min(at_once, epochs - first)
            begun = task * s.epochs + first
            orders = torch.stack([epoch_orders(n, seed, begun, count, y.device) for seed in seeds])
            _descend(values, own_codes, own_y, orders, s.batch)
            steps += len(rows) * count * -(-n // s.batch)
        if warm_up:
            break
    return steps


def _descend(values: Tensor, codes: Tensor, y: Tensor, orders: Tensor, batch: int) -> None:
    if values.is_cuda:
        descend(values, codes, y, orders, batch, LEARNING_RATE, SMOOTHING)
        return
    for run in range(len(values)):
        descend(values[run], codes[run], y[run], orders[run], batch, LEARNING_RATE, SMOOTHING)


def _take(codes: Tensor, rows: Tensor) -> Tensor:
    # torch cannot index uint16 on every device, but int16 of the same bits.
    small = codes.dtype == torch.uint16
    return codes.view(torch.int16)[rows].view(torch.uint16) if small else codes[rows]


def _accuracy(values: Tensor, codes: Tensor, y: Tensor) -> float:
    """The mean over classes of the share of rows that are right."""
    right = (mean_of_fetched(values, codes).argmax(dim=1) == y).double()
    return float(torch.stack([right[y == column].mean() for column in y.unique()]).mean())


def _show(bench: Bench, quick: bool) -> None:
    lines = []
    for row in bench.rows:
        target = TARGETS.get(row["op"]) if bench.cuda and not quick else None
        late = target is not None and row["seconds"] > target
        step, accuracies = row.get("microseconds_a_step"), row.get("accuracies", [])
        details = [row["note"]]
        if "decided_again" in row:
            details.append(f"{row['decided_again']:.4%} decided again")
        lines.append(
            [
                row["op"],
                records.seconds(row["seconds"]),
                "" if target is None else f"{target:g} s" + (" missed" if late else ""),
                "" if step is None else f"{step:.2f} µs",
                " ".join(f"{100 * accuracy:.1f}" for accuracy in accuracies),
                records.megabytes(row["peak_bytes"]),
                "; ".join(details),
            ]
        )
    records.show(
        f"{bench.name}: {bench.settings.n_codebooks} codebooks × {bench.settings.n_pairs} pairs"
        + (f", epochs divided by {QUICK}" if quick else ""),
        ["<operation", "time", "target", "a step", "accuracy, %", "peak memory", "<"],
        lines,
        "Everything was compiled before; embeddings are on the GPU unless a row says otherwise.",
    )
