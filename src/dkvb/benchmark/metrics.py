"""Metrics of continual learning: pure functions on the accuracy matrix.

`A[i, j]` is the accuracy on the classes of stage j after learning stage i, both counted from 0,
T stages in all. Accuracies are fractions; NaN marks what could not be measured (a class without
test rows) and is left out of every mean. A sum over no stages is 0: a stream of one stage has
nothing earlier to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]


def per_class_accuracy(
    y_true: npt.ArrayLike, y_pred: npt.ArrayLike, classes: npt.ArrayLike
) -> Floats:
    """Share of each class's rows that are predicted right: (Y,), NaN for a class without rows.

    >>> per_class_accuracy([0, 0, 1], [0, 1, 1], classes=[0, 1, 2])
    array([0.5, 1. , nan])
    """
    truth, prediction = _pair(y_true, y_pred)
    labels = np.asarray(classes)
    columns = _columns(truth, labels, "y_true")  # (n,)
    right = np.bincount(columns, weights=truth == prediction, minlength=len(labels))
    rows = np.bincount(columns, minlength=len(labels)).astype(np.float64)
    accuracy: Floats = np.full(len(labels), np.nan)
    np.divide(right, rows, out=accuracy, where=rows > 0)
    return accuracy


def confusion_matrix(
    y_true: npt.ArrayLike, y_pred: npt.ArrayLike, classes: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Rows of class a (down) that were predicted as class b (across): (Y, Y) counts.

    >>> confusion_matrix(["cat", "cat", "dog"], ["cat", "dog", "dog"], ["cat", "dog"])
    array([[1, 1],
           [0, 1]])
    """
    truth, prediction = _pair(y_true, y_pred)
    labels = np.asarray(classes)
    size = len(labels)
    cells = _columns(truth, labels, "y_true") * size + _columns(prediction, labels, "y_pred")
    return np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.int64)


def top_k_accuracy(
    y_true: npt.ArrayLike, scores: npt.ArrayLike, classes: npt.ArrayLike, k: int = 5
) -> float:
    """Share of rows whose true class is among the k highest scores; ties go to the lower column.

    >>> top_k_accuracy([0, 1], [[0.1, 0.2, 0.7], [0.3, 0.6, 0.1]], classes=[0, 1, 2], k=2)
    0.5
    """
    return float(in_top_k(y_true, scores, classes, k).mean())


def in_top_k(
    y_true: npt.ArrayLike, scores: npt.ArrayLike, classes: npt.ArrayLike, k: int = 5
) -> npt.NDArray[np.bool_]:
    """Of each row (n,), whether its true class is among the k highest of its scores (n, Y)."""
    labels, table = np.asarray(classes), np.asarray(scores, dtype=np.float64)  # (Y,), (n, Y)
    truth = np.asarray(y_true)
    if table.shape != (len(truth), len(labels)) or len(truth) == 0:
        raise ValueError(
            f"scores: expected shape ({len(truth)}, {len(labels)}), a row a label and a column "
            f"a class; got {table.shape}"
        )
    if np.isnan(table).any():
        raise ValueError("scores: expected numbers; got NaN, which has no rank")
    columns = _columns(truth, labels, "y_true")[:, None]  # (n, 1)
    own = np.take_along_axis(table, columns, axis=1)  # (n, 1)
    ahead = (table > own) | ((table == own) & (np.arange(len(labels)) < columns))  # (n, Y)
    within: npt.NDArray[np.bool_] = ahead.sum(axis=1) < k
    return within


def expected_calibration_error(
    y_true: npt.ArrayLike, probabilities: npt.ArrayLike, classes: npt.ArrayLike, n_bins: int = 15
) -> float:
    """How far confidence lies from accuracy: Σ_b n_b/n · |accuracy_b − mean confidence_b|.

    Rows are put into `n_bins` equal bins of confidence, the probability (n, Y) of the class they
    are given.

    >>> expected_calibration_error([0, 0], [[0.75, 0.25], [0.25, 0.75]], classes=[0, 1])
    0.25
    """
    labels, table = np.asarray(classes), np.asarray(probabilities, dtype=np.float64)
    truth = np.asarray(y_true)
    if table.shape != (len(truth), len(labels)) or len(truth) == 0:
        raise ValueError(
            f"probabilities: expected shape ({len(truth)}, {len(labels)}), a row a label and a "
            f"column a class; got {table.shape}"
        )
    if not ((table >= 0) & (table <= 1 + 1e-9)).all():
        raise ValueError("probabilities: expected numbers from 0 to 1; got others")
    if n_bins < 1:
        raise ValueError(f"n_bins: expected a whole number of at least 1; got {n_bins}")
    given = table.argmax(axis=1)  # (n,)
    confidence = table[np.arange(len(truth)), given]
    right = given == _columns(truth, labels, "y_true")
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    # n_b · |accuracy − confidence| is the absolute value of a sum over the bin.
    return float(np.abs(np.bincount(bins, weights=right - confidence)).sum() / len(truth))


def mean_per_class_accuracy(per_class: npt.ArrayLike) -> float:
    """Mean of the per-class accuracies, the paper's accuracy: every class weighs the same.

    >>> mean_per_class_accuracy([0.5, 1.0, float("nan")])
    0.75
    """
    return _mean(np.asarray(per_class, dtype=np.float64))


def accuracy_matrix(per_class: npt.ArrayLike, stage_columns: Sequence[npt.ArrayLike]) -> Floats:
    """The matrix A from per-class accuracies after each stage.

    `per_class` is (T, Y); `stage_columns[j]` holds the columns of stage j's classes.
    A[i, j] = mean of per_class[i, c] over the columns c of stage j.

    >>> accuracy_matrix([[1.0, 0.5, 0.0], [0.5, 0.0, 1.0]], [[0, 1], [2]])
    array([[0.75, 0.  ],
           [0.25, 1.  ]])
    """
    table = np.asarray(per_class, dtype=np.float64)  # (T, Y)
    columns = [np.asarray(c, dtype=np.int64) for c in stage_columns]
    return np.array([[_mean(row[c]) for c in columns] for row in table])


def final_accuracy(A: npt.ArrayLike, classes_per_stage: npt.ArrayLike | None = None) -> float:
    """Accuracy over all classes at the end: Σ_j w_j A[T-1, j] / Σ_j w_j.

    With w_j the number of classes of stage j (all equal if not given) this is the mean of the
    per-class accuracies, as in the paper.

    >>> final_accuracy([[1.0, 0.0], [0.25, 1.0]], classes_per_stage=[2, 1])
    0.5
    """
    matrix = _matrix(A)
    return _mean(matrix[-1], _weights(matrix, classes_per_stage))


def average_incremental_accuracy(
    A: npt.ArrayLike, classes_per_stage: npt.ArrayLike | None = None
) -> float:
    """Mean over the stages of the accuracy on all classes seen so far.

    1/T Σ_i (Σ_{j≤i} w_j A[i, j] / Σ_{j≤i} w_j), w_j the number of classes of stage j.

    >>> average_incremental_accuracy([[1.0, 0.0], [0.25, 0.75]])
    0.75
    """
    matrix = _matrix(A)
    weights = _weights(matrix, classes_per_stage)
    seen = [_mean(row[: i + 1], weights[: i + 1]) for i, row in enumerate(matrix)]
    return _mean(np.array(seen))


def forgetting(A: npt.ArrayLike) -> float:
    """How far earlier stages fell from their best: mean over j < T-1 of max_i A[i, j] - A[T-1, j].

    >>> forgetting([[1.0, 0.0], [0.25, 1.0]])
    0.75
    """
    matrix = _matrix(A)
    return _mean((matrix.max(axis=0) - matrix[-1])[:-1])


def backward_transfer(A: npt.ArrayLike) -> float:
    """What later stages did to earlier ones: mean over j < T-1 of A[T-1, j] - A[j, j].

    >>> backward_transfer([[1.0, 0.0], [0.25, 1.0]])
    -0.75
    """
    matrix = _matrix(A)
    return _mean((matrix[-1] - np.diagonal(matrix))[:-1])


def forward_transfer(A: npt.ArrayLike, baseline: npt.ArrayLike) -> float:
    """What earlier stages did for later ones: mean over j ≥ 1 of A[j-1, j] - baseline[j].

    `baseline[j]` is the accuracy on stage j of a model that has learned nothing: measured with
    a random start, or chance.

    >>> forward_transfer([[1.0, 0.5], [0.25, 1.0]], baseline=[0.25, 0.25])
    0.25
    """
    matrix = _matrix(A)
    start = np.asarray(baseline, dtype=np.float64)
    if start.shape != (len(matrix),):
        raise ValueError(
            f"baseline: expected {len(matrix)} accuracies, a stage each; got {start.shape}"
        )
    return _mean(np.diagonal(matrix, offset=1) - start[1:])


def _mean(values: Floats, weights: Floats | None = None) -> float:
    """Weighted mean of what is not NaN; 0 of nothing, NaN where nothing could be measured."""
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
            f"A: expected a square accuracy matrix (stages, stages); got shape {matrix.shape}"
        )
    if (matrix < 0).any() or (matrix > 1).any():
        raise ValueError("A: expected accuracies as fractions from 0 to 1; divide percents by 100")
    return matrix


def _weights(matrix: Floats, classes_per_stage: npt.ArrayLike | None) -> Floats:
    if classes_per_stage is None:
        return np.ones(len(matrix))
    weights = np.asarray(classes_per_stage, dtype=np.float64)
    if weights.shape != (len(matrix),) or (weights <= 0).any():
        raise ValueError(
            f"classes_per_stage: expected {len(matrix)} positive counts, a stage each; "
            f"got {np.asarray(classes_per_stage).tolist()}"
        )
    return weights


def _pair(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> tuple[Labels, Labels]:
    truth, prediction = np.asarray(y_true), np.asarray(y_pred)
    if truth.ndim != 1 or truth.shape != prediction.shape:
        raise ValueError(
            f"y_pred: expected one prediction a label, shape {truth.shape}; got {prediction.shape}"
        )
    return truth, prediction


def _columns(y: Labels, classes: Labels, name: str) -> npt.NDArray[np.int64]:
    """The column of every label: (n,)."""
    order = np.argsort(classes)
    place = np.searchsorted(classes, y, sorter=order)
    columns = order[np.minimum(place, len(classes) - 1)]
    strange = y[classes[columns] != y]
    if len(strange):
        raise ValueError(f"{name}: expected labels among classes; got {strange[0]!r}")
    return columns.astype(np.int64)
