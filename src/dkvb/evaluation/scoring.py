"""Predictions, top-5 accuracy and cross entropy of a classifier on test data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dkvb.evaluation import metrics
from dkvb.evaluation.records import Number

Array = npt.NDArray[Any]

_SCORES_PER_BLOCK = 1 << 26  # 512 MB in float64


class Scores(NamedTuple):
    """Predictions and scores on the test data."""

    predicted: Array  # (n,) labels
    top5: Number
    loss: Number


def score(classifier: Any, X: Any, y: Array, classes: Array) -> Scores:
    """Return the scores on test data X (n, m) with labels y (n,).

    Every sample is scored once, since a call may search for its keys again, and in blocks, since
    the scores (n, n_classes) of many classes may not fit into memory.
    """
    blocks = [
        _score_block(classifier, X_block, y_block, classes)
        for X_block, y_block in _blocks(X, y, len(classes))
    ]
    predicted = np.concatenate([labels for labels, _, _ in blocks])
    probabilities = [p for _, p, _ in blocks if p is not None]
    hits = [hits for _, _, hits in blocks if hits is not None]
    top5 = sum(hits) / len(predicted) if hits else None
    return Scores(predicted, top5, _cross_entropy(probabilities))


def loss(classifier: Any, X: Any, y: Array) -> Number:
    """Return the mean cross entropy, or None for a classifier without probabilities."""
    if not hasattr(classifier, "predict_proba"):
        return None
    known = np.asarray(classifier.classes_)
    return _cross_entropy(
        [
            _true_class_probability(classifier.predict_proba(X_block), y_block, known)
            for X_block, y_block in _blocks(X, y, len(known))
        ]
    )


def _blocks(X: Any, y: Array, n_classes: int) -> list[tuple[Any, Array]]:
    """Return samples and labels in blocks; a single block is X itself, with all that it keeps."""
    n, step = len(y), max(1, _SCORES_PER_BLOCK // n_classes)
    if n <= step:
        return [(X, y)] if n else []
    return [(X[first : first + step], y[first : first + step]) for first in range(0, n, step)]


def _score_block(
    classifier: Any, X: Any, y: Array, classes: Array
) -> tuple[Array, Array | None, int | None]:
    """Return predicted labels, probabilities of the true classes, and the number of top-5 hits.

    The last two are None where the classifier does not provide them.
    """
    probability = None
    if hasattr(classifier, "predict_proba"):
        scores = np.asarray(classifier.predict_proba(X), dtype=np.float64)
        probability = _true_class_probability(scores, y, np.asarray(classifier.classes_))
    elif hasattr(classifier, "decision_function"):
        scores = np.asarray(classifier.decision_function(X), dtype=np.float64)
    else:
        return np.asarray(classifier.predict(X)), None, None
    known = np.asarray(classifier.classes_)
    if scores.ndim == 1:  # scikit-learn's binary case: the score of class 1 against class 0
        scores = np.stack([np.zeros_like(scores), scores], axis=1)[:, -len(known) :]
    hits = metrics.top_k_hits(y, scores, classes) if np.array_equal(known, classes) else None
    return known[scores.argmax(axis=1)], probability, hits


def _true_class_probability(probability: Any, y: Array, known: Array) -> Array:
    """Return the probability (n,) of each true class, 0 where the classifier does not know it."""
    indices = np.minimum(np.searchsorted(known, y), len(known) - 1)
    values = np.asarray(probability)[np.arange(len(y)), indices]
    true_class: Array = np.where(known[indices] == y, values, 0.0)
    return true_class


def _cross_entropy(probabilities: list[Array]) -> Number:
    """Return the mean cross entropy from the probabilities of the true classes, in blocks."""
    values = np.concatenate([np.zeros(0), *probabilities])
    if len(values) == 0:
        return None
    return float(-np.log(np.maximum(values, np.finfo(np.float64).tiny)).mean())
