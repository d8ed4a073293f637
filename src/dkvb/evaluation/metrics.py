"""Metrics of continual learning: pure functions of the accuracy matrix.

`A[i, j]` is the accuracy on the classes of task j after task i of T tasks, both counted from 0.
Accuracies are fractions. NaN marks classes without test samples and is left out of every mean. The
mean over no tasks is 0: a stream of one task has no earlier task to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import top_k_accuracy_score

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]


def per_class_accuracy(
    y_true: npt.ArrayLike, y_pred: npt.ArrayLike, classes: npt.ArrayLike
) -> Floats:
    """Return the accuracy on each class (n_classes,), NaN for a class without samples.

    >>> per_class_accuracy([0, 0, 1], [0, 1, 1], classes=[0, 1, 2])
    array([0.5, 1. , nan])
    """
    truth, prediction = _check_pair(y_true, y_pred)
    labels = np.asarray(classes)
    indices = _class_indices(truth, labels, "y_true")  # (n,)
    n_correct = np.bincount(indices, weights=truth == prediction, minlength=len(labels))
    class_counts = np.bincount(indices, minlength=len(labels)).astype(np.float64)
    accuracy: Floats = np.full(len(labels), np.nan)
    np.divide(n_correct, class_counts, out=accuracy, where=class_counts > 0)
    return accuracy


def top_k_hits(
    y_true: npt.ArrayLike, scores: npt.ArrayLike, classes: npt.ArrayLike, k: int = 5
) -> int:
    """Return the number of samples whose true class is among the k highest scores.

    Scores (n, n_classes) may be −∞ for classes that were never learned.

    >>> top_k_hits([0, 1], [[0.1, 0.2, 0.7], [0.3, 0.6, 0.1]], classes=[0, 1, 2], k=2)
    1
    """
    labels, table, truth = np.asarray(classes), np.asarray(scores, np.float64), np.asarray(y_true)
    _check_table("scores", table, truth, labels)
    if k >= len(labels):
        return len(truth)
    table = table.clip(min=np.finfo(np.float64).min)  # scikit-learn refuses infinite scores
    if len(labels) == 2:
        table = table[:, 1] - table[:, 0]
    return int(top_k_accuracy_score(truth, table, k=k, labels=labels, normalize=False))


def expected_calibration_error(
    y_true: npt.ArrayLike, probabilities: npt.ArrayLike, classes: npt.ArrayLike, n_bins: int = 15
) -> float:
    """Return the expected calibration error Σ_b n_b/n · |accuracy_b − mean confidence_b|.

    Samples are sorted into `n_bins` bins of equal width by confidence, the probability of the
    predicted class.

    >>> expected_calibration_error([0, 0], [[0.75, 0.25], [0.25, 0.75]], classes=[0, 1])
    0.25
    """
    labels, table = np.asarray(classes), np.asarray(probabilities, dtype=np.float64)
    truth = np.asarray(y_true)
    _check_table("probabilities", table, truth, labels)
    if not ((table >= 0) & (table <= 1 + 1e-9)).all():
        raise ValueError("probabilities: expected numbers from 0 to 1; got others")
    if n_bins < 1:
        raise ValueError(f"n_bins: expected a whole number of at least 1; got {n_bins}")
    predicted = table.argmax(axis=1)  # (n,)
    confidence = table[np.arange(len(truth)), predicted]
    correct = predicted == _class_indices(truth, labels, "y_true")
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    # n_b · |accuracy − confidence| is the absolute value of a sum over the bin.
    return float(np.abs(np.bincount(bins, weights=correct - confidence)).sum() / len(truth))


def mean_per_class_accuracy(per_class: npt.ArrayLike) -> float:
    """Return the mean of the per-class accuracies, the accuracy that the paper reports.

    >>> mean_per_class_accuracy([0.5, 1.0, float("nan")])
    0.75
    """
    return _mean(np.asarray(per_class, dtype=np.float64))


def accuracy_matrix(per_class: npt.ArrayLike, task_classes: Sequence[npt.ArrayLike]) -> Floats:
    """Return the matrix A from the per-class accuracies after each task.

    `per_class` is (T, n_classes); `task_classes[j]` holds the class indices of task j.
    A[i, j] is the mean of per_class[i, c] over the classes c of task j.

    >>> accuracy_matrix([[1.0, 0.5, 0.0], [0.5, 0.0, 1.0]], [[0, 1], [2]])
    array([[0.75, 0.  ],
           [0.25, 1.  ]])
    """
    table = np.asarray(per_class, dtype=np.float64)  # (T, n_classes)
    indices = [np.asarray(c, dtype=np.int64) for c in task_classes]
    return np.array([[_mean(row[c]) for c in indices] for row in table])


def final_accuracy(A: npt.ArrayLike, classes_per_task: npt.ArrayLike | None = None) -> float:
    """Return the final accuracy over all classes: Σ_j w_j A[T-1, j] / Σ_j w_j.

    If w_j is the number of classes of task j (default: all equal), this is the mean of the
    per-class accuracies, as in the paper.

    >>> final_accuracy([[1.0, 0.0], [0.25, 1.0]], classes_per_task=[2, 1])
    0.5
    """
    matrix = _matrix(A)
    return _mean(matrix[-1], _weights(matrix, classes_per_task))


def average_incremental_accuracy(
    A: npt.ArrayLike, classes_per_task: npt.ArrayLike | None = None
) -> float:
    """Return the mean over tasks of the accuracy on the classes seen so far.

    1/T Σ_i (Σ_{j≤i} w_j A[i, j] / Σ_{j≤i} w_j), w_j the number of classes of task j.

    >>> average_incremental_accuracy([[1.0, 0.0], [0.25, 0.75]])
    0.75
    """
    matrix = _matrix(A)
    weights = _weights(matrix, classes_per_task)
    seen = [_mean(row[: i + 1], weights[: i + 1]) for i, row in enumerate(matrix)]
    return _mean(np.array(seen))


def forgetting(A: npt.ArrayLike) -> float:
    """Return the forgetting: mean over j < T-1 of max_i A[i, j] - A[T-1, j].

    >>> forgetting([[1.0, 0.0], [0.25, 1.0]])
    0.75
    """
    matrix = _matrix(A)
    return _mean((matrix.max(axis=0) - matrix[-1])[:-1])


def backward_transfer(A: npt.ArrayLike) -> float:
    """Return the backward transfer: mean over j < T-1 of A[T-1, j] - A[j, j].

    >>> backward_transfer([[1.0, 0.0], [0.25, 1.0]])
    -0.75
    """
    matrix = _matrix(A)
    return _mean((matrix[-1] - np.diagonal(matrix))[:-1])


def forward_transfer(A: npt.ArrayLike, baseline: npt.ArrayLike) -> float:
    """Return the forward transfer: mean over j ≥ 1 of A[j-1, j] - baseline[j].

    `baseline[j]` is the accuracy on task j of an untrained model, or chance.

    >>> forward_transfer([[1.0, 0.5], [0.25, 1.0]], baseline=[0.25, 0.25])
    0.25
    """
    matrix = _matrix(A)
    start = np.asarray(baseline, dtype=np.float64)
    if start.shape != (len(matrix),):
        raise ValueError(
            f"baseline: expected {len(matrix)} accuracies, one per task; got {start.shape}"
        )
    return _mean(np.diagonal(matrix, offset=1) - start[1:])


def _check_table(name: str, table: Floats, y: Labels, classes: Labels) -> None:
    if table.shape != (len(y), len(classes)) or len(y) == 0:
        raise ValueError(
            f"{name}: expected shape ({len(y)}, {len(classes)}), one row per label and one column "
            f"per class; got {table.shape}"
        )


def _mean(values: Floats, weights: Floats | None = None) -> float:
    """Return the weighted mean without NaN; 0 of no values, NaN if all are NaN."""
    if len(values) == 0:
        return 0.0
    measured = ~np.isnan(values)
    if not measured.any():
        return float("nan")
    return float(
        np.average(values[measured], weights=None if weights is None else weights[measured])
    )


def _matrix(A: npt.ArrayLike) -> Floats:
    matrix = np.asarray(A, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(
            f"A: expected a square accuracy matrix (tasks, tasks); got shape {matrix.shape}"
        )
    if (matrix < 0).any() or (matrix > 1).any():
        raise ValueError("A: expected accuracies as fractions from 0 to 1; divide percents by 100")
    return matrix


def _weights(matrix: Floats, classes_per_task: npt.ArrayLike | None) -> Floats:
    if classes_per_task is None:
        return np.ones(len(matrix))
    weights = np.asarray(classes_per_task, dtype=np.float64)
    if weights.shape != (len(matrix),) or (weights <= 0).any():
        raise ValueError(
            f"classes_per_task: expected {len(matrix)} positive counts, one per task; "
            f"got {np.asarray(classes_per_task).tolist()}"
        )
    return weights


def _check_pair(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> tuple[Labels, Labels]:
    truth, prediction = np.asarray(y_true), np.asarray(y_pred)
    if truth.ndim != 1 or truth.shape != prediction.shape:
        raise ValueError(
            f"y_pred: expected one prediction per label {truth.shape}; got {prediction.shape}"
        )
    return truth, prediction


def _class_indices(y: Labels, classes: Labels, name: str) -> npt.NDArray[np.int64]:
    """Return the index of every label in classes (n,)."""
    order = np.argsort(classes)
    positions = np.searchsorted(classes, y, sorter=order)
    indices = order[np.minimum(positions, len(classes) - 1)]
    unknown = y[classes[indices] != y]
    if len(unknown):
        raise ValueError(f"{name}: expected labels among classes; got {unknown[0]!r}")
    return indices.astype(np.int64)
