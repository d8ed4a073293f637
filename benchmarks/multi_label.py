"""Sets of labels: the kernel classifier beside one logistic regression for each label.

    python -m benchmarks multi-label --train train.npz --test test.npz [--rows 8000]

Each file holds embeddings x (n, m) and what labels they have, y (n, L) of 0 and 1. Both methods
choose a threshold for each label by F1, the kernel classifier by its leave-one-out scores, logistic
regression by cross-validation; without that, logistic regression says yes from one half.

Checked: the kernel classifier's F1, averaged over labels, is at least that of logistic regression.
Measured on GoEmotions (Demszky et al., 2020) with embeddings of all-MiniLM-L6-v2.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier

from benchmarks import records
from dkvb.memory import KernelClassifier
from dkvb.memory.set_quality import best_threshold

FOLDS = 3
KERNEL, HALF, CHOSEN = "kernel", "logistic regression", "logistic regression, thresholds chosen"


class Rows(NamedTuple):
    """Embeddings (n, m) and labels (n, L)."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]


class Found(NamedTuple):
    """What a method says of test rows."""

    method: str
    labels: NDArray[Any]  # (n, L) 0 or 1
    scores: NDArray[np.float64]  # (n, L)
    seconds: float  # to learn


def read(path: Path, most: int | None = None) -> Rows:
    """The first rows of a file, or an error that says what is wrong with it."""
    with np.load(path, allow_pickle=False) as file:
        missing = {"x", "y"} - set(file.files)
        if missing:
            raise SystemExit(f"{path}: expected arrays x and y; got {', '.join(file.files)}")
        X, y = file["x"][:most], file["y"][:most]
    if y.ndim != 2 or len(X) != len(y) or not np.isin(y, (0, 1)).all():
        raise SystemExit(
            f"{path}: expected y of 0 and 1, one row for each of the {len(X)} of x; got {y.shape}"
        )
    return Rows(X.astype(np.float32), y.astype(np.int64))


def of_kernel(train: Rows, test: Rows) -> Found:
    """The kernel classifier."""
    start = time.perf_counter()
    model = KernelClassifier().fit(train.X, train.y)
    seconds = time.perf_counter() - start
    return Found(KERNEL, model.predict(test.X), model.decision_function(test.X), seconds)


def of_logistic_regression(train: Rows, test: Rows) -> list[Found]:
    """One logistic regression for each label, with thresholds of one half and with chosen ones."""
    start = time.perf_counter()
    model = OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(train.X, train.y)
    seconds = time.perf_counter() - start
    scores = model.predict_proba(test.X)
    held_out = cross_val_predict(model, train.X, train.y, cv=FOLDS, method="predict_proba")
    columns = zip(held_out.T, train.y.T.astype(np.float64), strict=True)
    weights = np.ones(len(train.y))
    thresholds = np.array([best_threshold(one, y, weights)[0] for one, y in columns])
    chosen = time.perf_counter() - start
    return [
        Found(HALF, scores > 0.5, scores, seconds),
        Found(CHOSEN, scores > thresholds, scores, chosen),
    ]


def run(train_file: Path, test_file: Path, rows: int | None, out: Path) -> int:
    """Print and record both methods; 1 where the kernel classifier is behind."""
    train, test = read(train_file, rows), read(test_file)
    if train.y.shape[1] != test.y.shape[1]:
        raise SystemExit(
            f"{test_file}: expected {train.y.shape[1]} labels, as in {train_file}; "
            f"got {test.y.shape[1]}"
        )
    lines = [
        records.record(
            "multi-label",
            "fit and predict",
            method=one.method,
            rows=len(train.y),
            labels=train.y.shape[1],
            macro_f1=f1_score(test.y, one.labels, average="macro", zero_division=0),
            micro_f1=f1_score(test.y, one.labels, average="micro", zero_division=0),
            mean_average_precision=average_precision_score(test.y, one.scores, average="macro"),
            seconds=one.seconds,
        )
        for one in (of_kernel(train, test), *of_logistic_regression(train, test))
    ]
    records.append(out, lines)
    columns = ["macro_f1", "micro_f1", "mean_average_precision"]
    records.show(
        f"{len(train.y):,} rows of {train.y.shape[1]} labels",
        ["method", "macro-F1", "micro-F1", "mean average precision", "learned in"],
        [
            [line["method"], *(f"{line[c]:.3f}" for c in columns), records.seconds(line["seconds"])]
            for line in lines
        ],
    )
    best = max(line["macro_f1"] for line in lines[1:])
    behind = lines[0]["macro_f1"] < best
    print(f"kernel {'is behind' if behind else 'is at least level'}: {best:.3f} to reach")
    return int(behind)
