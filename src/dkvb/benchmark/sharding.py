"""Which rows of a run are this process's, and how a classifier does on them and on all others'."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from dkvb._support import process_group
from dkvb.benchmark import metrics
from dkvb.benchmark.records import Number
from dkvb.benchmark.streams import Stream

Array = npt.NDArray[Any]

_SCORES_AT_ONCE = 1 << 26  # numbers: 512 MB


class Tested(NamedTuple):
    """What the test rows say, those of all processes."""

    predicted: Array  # (n,) labels
    top5: Number
    loss: Number


class Share:
    """Which rows are this process's: all, unless it is one of several and the classifier says that
    it `splits_rows`, that is, learns from each process's rows what one would learn from all."""

    def __init__(self, classifier: Any, stream: Stream, n_test: int) -> None:
        self._apart = process_group.world_size() > 1 and getattr(classifier, "splits_rows", False)
        self._test_rows = self._of(n_test)
        self.stages = [stage.rows[self._of(len(stage))] for stage in stream]
        self._train_rows: Array | None = None
        if self._apart:
            self._train_rows = np.unique(np.concatenate(self.stages))
            self.stages = [np.searchsorted(self._train_rows, rows) for rows in self.stages]

    def _of(self, n: int) -> slice:
        return process_group.shard(n) if self._apart else slice(0, n)

    def of_train(self, rows: Any) -> Any:
        return rows if self._train_rows is None else rows[self._train_rows]

    def of_test(self, rows: Any) -> Any:
        return rows[self._test_rows] if self._apart else rows

    def of_stage(self, sample: Array, n: int) -> Array:
        """Of a sample of a stage's n rows those that are here, as places among these."""
        own = self._of(n)
        places: Array = sample[(sample >= own.start) & (sample < own.stop)] - own.start
        return places

    def test(self, classifier: Any, X: Any, y: Array, classes: Array) -> Tested:
        """Everything from one call a row, since a call may search anew for its keys, and a few
        rows at a time, since scores (n, Y) of many classes may not fit."""
        parts = [
            _scored(classifier, X[part], y[part], classes) for part in _parts(len(y), len(classes))
        ]
        predicted = np.concatenate([labels for labels, _, _ in parts])
        if self._apart:
            columns = np.searchsorted(classes, predicted).astype(np.float64)
            predicted = classes[self._everyones([columns]).astype(np.int64)]
        own = self._everyones([own for _, own, _ in parts if own is not None])
        hits = self._everyones([hits for _, _, hits in parts if hits is not None])
        return Tested(predicted, float(hits.mean()) if len(hits) else None, _mean_loss(own))

    def loss(self, classifier: Any, X: Any, y: Array) -> Number:
        """The mean cross entropy of rows; None for a classifier without probabilities."""
        if not hasattr(classifier, "predict_proba"):
            return None
        known = np.asarray(classifier.classes_)
        parts = [
            _own_probability(classifier.predict_proba(X[part]), y[part], known)
            for part in _parts(len(y), len(known))
        ]
        return _mean_loss(self._everyones(parts))

    def _everyones(self, parts: list[Array]) -> Array:
        """Numbers of all rows (n,), in their order."""
        own = np.concatenate([np.zeros(0), *parts])
        if not self._apart:
            return own
        return np.concatenate([t.numpy() for t in process_group.all_gather(torch.from_numpy(own))])


def _parts(n: int, n_classes: int) -> list[slice]:
    step = max(1, _SCORES_AT_ONCE // n_classes)
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


def _scored(
    classifier: Any, X: Any, y: Array, classes: Array
) -> tuple[Array, Array | None, Array | None]:
    """Of each row the label predicted, the probability of its own class, and whether that is among
    the five best; None where the classifier does not say."""
    own = None
    if hasattr(classifier, "predict_proba"):
        scores = np.asarray(classifier.predict_proba(X), dtype=np.float64)
        own = _own_probability(scores, y, np.asarray(classifier.classes_))
    elif hasattr(classifier, "decision_function"):
        scores = np.asarray(classifier.decision_function(X), dtype=np.float64)
    else:
        return np.asarray(classifier.predict(X)), None, None
    known = np.asarray(classifier.classes_)
    if scores.ndim == 1:  # scikit-learn's binary exception: how far class 1 leads class 0
        scores = np.stack([np.zeros_like(scores), scores], axis=1)[:, -len(known) :]
    hits = metrics.in_top_k(y, scores, classes) if np.array_equal(known, classes) else None
    return known[scores.argmax(axis=1)], own, hits


def _own_probability(probability: Any, y: Array, known: Array) -> Array:
    """The probability (n,) of each row's own class, 0 where the classifier does not know it."""
    columns = np.minimum(np.searchsorted(known, y), len(known) - 1)
    found = np.asarray(probability)[np.arange(len(y)), columns]
    own: Array = np.where(known[columns] == y, found, 0.0)
    return own


def _mean_loss(own: Array) -> Number:
    """Mean cross entropy, from probabilities of the right classes (n,)."""
    if len(own) == 0:
        return None
    return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean())
