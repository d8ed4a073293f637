"""`python -m benchmarks.batched`: batched training of gradient-trained baselines on one GPU.

First a check: batched and single runs must agree, on the GPU and on the CPU. Then speed, on
random rows of the paper's sizes: 50,000 rows of 2,048 numbers, tasks of 10,000. A task of the
paper is 2,000 epochs; a few are enough to measure. With `--device cpu` everything is small.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from benchmarks import records
from dkvb.baselines.batched import BatchedTrainer
from dkvb.baselines.gradient import GradientClassifier
from dkvb.estimators.registry import EWCClassifier, LinearClassifier, MLPClassifier, SDMLPClassifier
from dkvb.evaluation.batched_training import Run, train_batched
from dkvb.evaluation.runner import evaluate
from dkvb.evaluation.streams import class_incremental

TOLERANCE = 1e-3  # of scores after a few hundred steps, relative to the largest
EPOCHS, TASKS = 2000, 5  # of the paper's experiment
CLASSES = 10


@dataclass(frozen=True)
class Case:
    """So many models of one kind, each on a task of so many rows."""

    name: str
    model: GradientClassifier
    models: int
    rows: int
    schedule: int  # epochs in all of a whole run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batched", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="about so long a case")
    given = parser.parse_args(arguments)
    wrong = check(given.device)
    measure(given.device, given.seconds)
    return 1 if wrong else 0


# ----------------------------------------------------------------------------------------- check
def check(device: str) -> int:
    """How many kinds of models are not the same stacked, alone, and alone on the CPU."""
    kinds: list[GradientClassifier] = [
        LinearClassifier(learning_rate=0.1),
        LinearClassifier(learning_rate=0.1, bias=False, weight_decay=0.01),
        LinearClassifier(learning_rate=0.01, optimizer="adam"),
        MLPClassifier(learning_rate=0.1, hidden=33),
        EWCClassifier(learning_rate=0.1, hidden=33, ewc_strength=10.0),
        SDMLPClassifier(n_neurons=100, switch_after=3000),
    ]
    lines, wrong = [], 0
    for kind in kinds:
        kind.set_params(epochs=12, batch_size=32, device=device)
        stacked, alone, on_cpu = _three_ways(kind)
        largest = max(np.abs(scores).max() for scores in on_cpu)
        errors = [
            max(np.abs(a - b).max() for a, b in zip(stacked, others, strict=True)) / largest
            for others in (alone, on_cpu)
        ]
        wrong += max(errors) > TOLERANCE
        verdict = "same" if max(errors) <= TOLERANCE else "DIFFERENT"
        lines.append([repr(kind).partition("(")[0], *(f"{e:.1e}" for e in errors), verdict])
    records.show(
        "Batched against single runs: largest difference of scores",
        ["<model", "alone", "CPU", "<"],
        lines,
    )
    return wrong


def _three_ways(kind: GradientClassifier) -> tuple[list[Any], list[Any], list[Any]]:
    """Scores of test rows after three tasks: stacked, alone on the device, and on the CPU."""
    rng = np.random.default_rng(0)
    centres = rng.random((6, 40))
    y = rng.permutation(np.repeat(np.arange(6), 70))  # 140 samples per task: batches of 32 and 12
    X = (centres[y] + 0.3 * rng.random((len(y), 40))).astype(np.float32)
    data = (X, y), (X[:50], y[:50])
    own = [
        clone(kind).set_params(random_state=seed, label_smoothing=smoothing)
        for seed, smoothing in ((1, 0.1), (2, 0.0), (3, 0.1))
    ]
    streams = [class_incremental(y, seed=seed) for seed in (1, 2, 3)]

    def scores(models: list[GradientClassifier]) -> list[Any]:
        return [model.decision_function(X) for model in models]

    def one_by_one(device: str) -> list[Any]:
        models = [clone(model).set_params(device=device) for model in own]
        for model, stream in zip(models, streams, strict=True):
            evaluate(partial(_itself, model), stream, *data, final_only=True)
        return scores(models)

    alone, on_cpu = one_by_one(kind.device), one_by_one("cpu")
    runs = [Run(model, stream) for model, stream in zip(own, streams, strict=True)]
    train_batched(runs, *data, final_only=True)
    return scores(own), alone, on_cpu


def _itself(model: GradientClassifier) -> GradientClassifier:
    return model


# --------------------------------------------------------------------------------------- measure
def measure(device: str, seconds: float) -> None:
    """Steps a second in float32 and in TF32, and what a whole run of all models would take."""
    small = torch.device(device).type != "cuda"
    n, width, task = (2000, 64, 400) if small else (50_000, 2048, 10_000)
    x, y = _rows(n, width, device)
    neurons = 200 if small else 10_000
    cases = [
        Case("linear, tasks", LinearClassifier(), 30, task, TASKS * EPOCHS),
        Case("linear, iid", LinearClassifier(), 10, n, EPOCHS),
        Case("mlp, tasks", MLPClassifier(), 30, task, TASKS * EPOCHS),
        Case("sdmlp 1,000", SDMLPClassifier(n_neurons=neurons // 10), 5, task, TASKS * EPOCHS),
        Case("sdmlp 10,000", SDMLPClassifier(n_neurons=neurons), 5, task, TASKS * EPOCHS),
    ]
    lines = []
    for case in cases:
        for precision in ("highest", "high"):
            with _matmul(precision):
                lines.append(_line(case, precision, x, y, device, seconds))
    name = "CPU, small" if small else torch.cuda.get_device_name(device)
    columns = ["<models", "stacked", "products", "µs a step", "whole run", "memory", "accuracy"]
    records.show(f"Batched training: {name}", columns, lines)


def _line(
    case: Case, precision: str, x: Tensor, y: Tensor, device: str, seconds: float
) -> list[str]:
    models = [clone(case.model) for _ in range(case.models)]
    for r, model in enumerate(models):
        model.set_params(random_state=r, device=device)
        model._begin(np.arange(CLASSES), x.shape[1])
    if x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer = BatchedTrainer(models, x, y)
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(len(x), generator=generator)[: case.rows] for _ in models])
    rows = rows.to(device)
    trainer.learn(rows, 10)  # starts libraries, records the graph
    some = slice(0, 1000)
    right = models[0]._score_tensor(x[some]).argmax(dim=1) == y[some]
    epochs, taken = 1, 0.0
    while True:
        start = time.perf_counter()
        trainer.learn(rows, epochs)
        taken = time.perf_counter() - start
        if taken > seconds / 2:
            break
        epochs *= 2
    step = taken / (epochs * -(-case.rows // case.model.batch_size))
    whole = taken / epochs * case.schedule
    memory = torch.cuda.max_memory_allocated() if x.is_cuda else None
    return [
        case.name,
        str(case.models),
        "float32" if precision == "highest" else "TF32",
        f"{1e6 * step:.0f}",
        records.seconds(whole),
        records.megabytes(memory),
        f"{100 * float(right.double().mean()):.1f}",
    ]


def _rows(n: int, width: int, device: str) -> tuple[Tensor, Tensor]:
    """Rows (n, width) that are never negative, as ResNet50's, in ten classes that overlap."""
    generator = torch.Generator(device).manual_seed(0)
    y = torch.randint(CLASSES, (n,), generator=generator, device=device)
    centres = torch.randn(CLASSES, width, generator=generator, device=device)
    x = 0.15 * centres[y] + torch.randn(n, width, generator=generator, device=device)
    return x.relu_(), y


@contextmanager
def _matmul(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    sys.exit(main())
