"""ImageNet's shape on one machine: 1.28 million rows, 1,000 classes in 500 tasks, synthetic rows.

On CUDA rows are made on the card. On the CPU they are written to a memory map first, codes go to
another one, and are learned from there. Compiling is not counted: everything runs once on a few
rows before it is timed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import records
from benchmarks.peak import STATUS, memory
from benchmarks.problem import LEARNING_RATE, SMOOTHING
from dkvb import fit_keys
from dkvb.bottleneck import Keys, sgd
from paper.synthetic import Mixture

TARGETS = {"snapping": 3.0, "sgd": 60.0}  # seconds on one H200 at full size


@dataclass(frozen=True)
class Settings:
    """The paper's sizes and ImageNet's shape, unless a test makes them small."""

    device: str = "cuda"
    n_rows: int = 1_281_167
    n_test_rows: int = 10_000
    n_key_rows: int = 50_000
    n_classes: int = 1000
    classes_a_task: int = 2
    width: int = 512
    n_codebooks: int = 256
    n_pairs: int = 4096
    key_dim: int = 14
    key_epochs: int = 10
    epochs: int = 20  # of SGD, 0 for none
    batch: int = 256

    @property
    def cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"


def run(settings: Settings, out: Path, folder: Path | None = None) -> int:
    """Measure, append to `out`, print a table; 1 where a target was missed."""
    bench = Bench(settings)
    with TemporaryDirectory(dir=folder) as name:
        _measure(bench, settings, Path(name))
    records.append(out, bench.rows)
    full = settings == Settings()
    missed = [r for r in bench.rows if full and r["seconds"] > TARGETS.get(r["op"], np.inf)]
    records.show(
        f"{bench.name}: synthetic, {settings.n_rows:,} × {settings.width}, "
        f"{settings.n_classes} classes, {settings.n_codebooks} × {settings.n_pairs} pairs",
        ["<step", "time", "target", "rows/s", "peak memory", "<note"],
        [
            [
                row["op"],
                records.seconds(row["seconds"]),
                (f"{TARGETS[row['op']]:g} s" if full and row["op"] in TARGETS else "")
                + " missed" * (row in missed),
                f"{row['rows'] / row['seconds']:,.0f}" if "rows" in row else "",
                records.megabytes(row["peak_bytes"]),
                row["note"],
            ]
            for row in bench.rows
        ],
    )
    return int(bool(missed))


class Bench:
    """Collects timed rows, with the peak memory of each."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.cuda = settings, settings.cuda
        self.name = torch.cuda.get_device_name(settings.device) if self.cuda else "CPU"
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def timed(self, op: str, note: str = "", **fields: Any) -> Iterator[dict[str, Any]]:
        row: dict[str, Any] = {"device": self.name, "synthetic": True, "note": note, **fields}
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        elif STATUS.exists():
            Path("/proc/self/clear_refs").write_text("5")  # forget the highest memory so far
        start = time.perf_counter()
        yield row
        if self.cuda:
            torch.cuda.synchronize()
        row["seconds"] = time.perf_counter() - start
        row["peak_bytes"] = self._peak()
        row["settings"] = vars(self.settings)
        self.rows.append(records.record("imagenet", op, **row))

    def _peak(self) -> int | None:
        if self.cuda:
            return int(torch.cuda.max_memory_allocated())
        return memory("VmHWM") if STATUS.exists() else None


def _measure(bench: Bench, s: Settings, folder: Path) -> None:
    shape = (s.n_classes, s.width)
    train = Mixture(*shape, s.n_rows, seed=1)
    test = Mixture(*shape, s.n_test_rows, seed=1, sample=1)
    with bench.timed("synthetic rows", "made, not measured against anything"):
        x = _on_card(train, s.device) if s.cuda else train.file(folder, "train")
        x_test = torch.from_numpy(test.array()).to(s.device)
        key_rows = torch.from_numpy(Mixture(100, s.width, s.n_key_rows, seed=2).array())
        key_rows = key_rows.to(s.device)
    y = torch.from_numpy(train.labels()).to(s.device)

    how: dict[str, Any] = {"preset": "paper", "n_codebooks": s.n_codebooks}
    how |= {"n_pairs": s.n_pairs, "key_dim": s.key_dim}
    fit_keys(key_rows[: s.n_pairs * 5 // 4], **how, epochs=1, device=s.device)
    with bench.timed("key initialisation", f"{s.key_epochs} epochs × {s.n_key_rows:,} rows"):
        keys = fit_keys(key_rows, **how, epochs=s.key_epochs, device=s.device)

    keys.codes(x[:5000])
    with bench.timed("snapping", rows=s.n_rows, note="float16 rows to uint16 codes"):
        codes = keys.codes(x, out=None if s.cuda else folder / "codes.npy")

    if s.epochs:
        _descend(bench, s, keys, codes, y, x_test, test.labels())


def _on_card(mixture: Mixture, device: str) -> Tensor:
    """The same mixture, other rows: made where they are needed."""
    few = Mixture(**{**vars(mixture), "n_rows": mixture.n_classes})
    generator = torch.Generator(device).manual_seed(0)
    classes = np.random.default_rng([mixture.seed, 1])
    centres = mixture.separation * classes.standard_normal(
        (few.n_classes, few.modes, few.inner), dtype=np.float32
    )
    space = np.random.default_rng(0)
    mixing = space.standard_normal((few.inner, few.width), dtype=np.float32) / few.inner**0.5
    on_card = [torch.from_numpy(part).to(device) for part in (centres, mixing, mixture.labels())]
    x = torch.empty((mixture.n_rows, few.width), dtype=torch.float16, device=device)
    for first in range(0, mixture.n_rows, 1 << 17):
        labels = on_card[2][first : first + (1 << 17)]
        n = len(labels)
        mode = torch.randint(few.modes, (n,), generator=generator, device=device)
        z = on_card[0][labels, mode]
        z += torch.randn(z.shape, generator=generator, device=device)
        rows = z @ on_card[1]
        rows += 0.3 * torch.randn(rows.shape, generator=generator, device=device)
        x[first : first + n] = rows.half()
    return x


def _tasks(s: Settings) -> list[Tensor]:
    """The rows of each task, classes in the order that the paper's code draws from seed 1."""
    bounds = [-(-c * s.n_rows // s.n_classes) for c in range(s.n_classes + 1)]
    order = list(range(s.n_classes))
    random.Random(1).shuffle(order)
    size = s.classes_a_task
    return [
        torch.cat([torch.arange(bounds[c], bounds[c + 1]) for c in order[i : i + s.classes_a_task]])
        for i in range(0, s.n_classes, size)
    ]


def _take(codes: Tensor, rows: Tensor) -> Tensor:
    # torch cannot index uint16 on every device, but int16 of the same bits.
    small = codes.dtype == torch.uint16
    rows = rows.to(codes.device)
    return codes.view(torch.int16)[rows].view(torch.uint16) if small else codes[rows]


def _descend(
    bench: Bench, s: Settings, keys: Keys, codes: Tensor, y: Tensor, x_test: Tensor, y_test: Any
) -> None:
    tasks = _tasks(s)
    how: dict[str, Any] = {"batch_size": s.batch, "learning_rate": LEARNING_RATE}
    how |= {"label_smoothing": SMOOTHING, "seed": 1, "epochs": s.epochs}

    def learn(state: sgd.LearnedValues, rows: Tensor) -> sgd.LearnedValues:
        return sgd.update(state, _take(codes, rows), y[rows.to(y.device)], **how)

    start = sgd.start(keys.n_codebooks, keys.n_pairs, keys.device)
    for n in (len(tasks[0]) // 16 * 16, len(tasks[0]) // 16 * 16 - 1):  # Triton compiles for both
        learn(sgd.add_classes(start, s.n_classes), tasks[0][:n])
    state = sgd.add_classes(start, s.n_classes)
    steps = s.epochs * sum(-(-len(rows) // s.batch) for rows in tasks)
    with bench.timed("sgd", rows=s.epochs * s.n_rows, steps=steps) as row:
        for rows in tasks:
            state = learn(state, rows)
        row["note"] = f"{len(tasks)} tasks × {s.epochs} epochs, {steps:,} steps"
    found = keys.codes(x_test, active=state.active)
    with bench.timed("sgd, predicting", rows=s.n_test_rows) as row:
        predicted = sgd.logits(state, found).argmax(dim=1).cpu().numpy()
        row["accuracy"] = float((predicted == y_test).mean())
        row["note"] = f"{row['accuracy']:.1%} right, of synthetic rows"
