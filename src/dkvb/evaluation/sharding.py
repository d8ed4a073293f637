"""Sharding of a run's data over processes, and scores over the data of all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from dkvb._support import process_group
from dkvb.evaluation import metrics
from dkvb.evaluation.records import Number
from dkvb.evaluation.streams import Stream

Array = npt.NDArray[Any]

_SCORES_PER_BLOCK = 1 << 26  # 512 MB in float64


class Scores(NamedTuple):
    """Predictions and scores on the test data of all processes."""

    predicted: Array  # (n,) labels
    top5: Number
    loss: Number


class Sharding:
    """The samples that this process learns from and is tested on.

    These are all samples, unless there are several processes and the classifier `splits_rows`: it
    then learns from each process's samples what one process would learn from all of them.
    """

    def __init__(self, classifier: Any, stream: Stream, n_test: int) -> None:
        self._is_sharded = process_group.world_size() > 1 and getattr(
            classifier, "splits_rows", False
        )
        self._test = self._shard(n_test)
        self.tasks = [task.indices[self._shard(len(task))] for task in stream]
        self._train: Array | None = None
        if self._is_sharded:
            self._train = np.unique(np.concatenate(self.tasks))
            self.tasks = [np.searchsorted(self._train, indices) for indices in self.tasks]

    def _shard(self, n: int) -> slice:
        return process_group.shard(n) if self._is_sharded else slice(0, n)

    def train_shard(self, X: Any) -> Any:
        """Return this process's part of the training data."""
        return X if self._train is None else X[self._train]

    def test_shard(self, X: Any) -> Any:
        """Return this process's part of the test data."""
        return X[self._test] if self._is_sharded else X

    def sample_shard(self, sample: Array, n: int) -> Array:
        """Return the part of a sample of a task's n samples that is here, as indices into it."""
        shard = self._shard(n)
        indices: Array = sample[(sample >= shard.start) & (sample < shard.stop)] - shard.start
        return indices

    def score(self, classifier: Any, X: Any, y: Array, classes: Array) -> Scores:
        """Score this process's test data and return the scores over all processes.

        Every sample is scored once, since a call may search for its keys again, and in blocks,
        since the scores (n, n_classes) of many classes may not fit into memory.
        """
        blocks = [
            _score_block(classifier, X_block, y_block, classes)
            for X_block, y_block in _blocks(X, y, len(classes))
        ]
        predicted = np.concatenate([labels for labels, _, _ in blocks])
        if self._is_sharded:
            class_indices = np.searchsorted(classes, predicted).astype(np.float64)
            predicted = classes[self._gather([class_indices]).astype(np.int64)]
        probabilities = self._gather([p for _, p, _ in blocks if p is not None])
        hits = self._gather([np.array([hits], float) for _, _, hits in blocks if hits is not None])
        top5 = float(hits.sum()) / len(predicted) if len(hits) else None
        return Scores(predicted, top5, _cross_entropy(probabilities))

    def loss(self, classifier: Any, X: Any, y: Array) -> Number:
        """Return the mean cross entropy, or None for a classifier without probabilities."""
        if not hasattr(classifier, "predict_proba"):
            return None
        known = np.asarray(classifier.classes_)
        blocks = [
            _true_class_probability(classifier.predict_proba(X_block), y_block, known)
            for X_block, y_block in _blocks(X, y, len(known))
        ]
        return _cross_entropy(self._gather(blocks))

    def _gather(self, blocks: list[Array]) -> Array:
        """Return the numbers of all processes (n,), in the order of the samples."""
        values = np.concatenate([np.zeros(0), *blocks])
        if not self._is_sharded:
            return values
        gathered = process_group.all_gather(torch.from_numpy(values))
        return np.concatenate([tensor.numpy() for tensor in gathered])


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


def _cross_entropy(probabilities: Array) -> Number:
    """Return the mean cross entropy from the probabilities of the true classes (n,)."""
    if len(probabilities) == 0:
        return None
    return float(-np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)).mean())
