"""Nearest class mean."""

from __future__ import annotations

import numpy as np

from dkvb._support.files import State
from dkvb._support.validation import one_of
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier, class_sums

_BLOCK = 4096  # samples in float64 at a time, which bounds memory


class PrototypesClassifier(StreamClassifier):
    """Nearest class mean, by Euclidean or cosine distance.

    Classes count equally whatever their number of samples, so that there is nothing to balance.

    Needs: no task boundaries. Rehearsal-free and order-invariant; classes need not be known in
    advance. Memory: m·Y float64 numbers.

    >>> nearest = PrototypesClassifier().partial_fit([[0.0], [2.0]], ["a", "a"])
    >>> nearest.partial_fit([[5.0]], ["b"]).predict([[2.9], [3.1]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(self, *, metric: str = "euclidean") -> None:
        self.metric = metric

    def _check_settings(self) -> None:
        one_of("metric", self.metric, ("euclidean", "cosine"))

    def _start(self, width: int) -> None:
        self._sums = np.zeros((0, width))  # (Y, m)
        self._counts = np.zeros(0, np.int64)  # (Y,)

    def _grow(self, n_columns: int) -> None:
        new = n_columns - len(self._counts)
        self._sums = np.pad(self._sums, ((0, new), (0, 0)))
        self._counts = np.pad(self._counts, (0, new))

    def _learn(self, rows: Rows, columns: Columns) -> None:
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            sums, counts = class_sums(self._scaled(rows[part]), columns[part], len(self._counts))
            self._sums += sums
            self._counts += counts

    def _learned(self) -> State:
        return State.of(sums=self._sums, counts=self._counts)

    def _recall(self, state: State, n_columns: int) -> None:
        shape = (n_columns, self.n_features_in_)
        self._sums = state.array("sums", np.float64, shape)
        self._counts = state.whole_numbers("counts", (n_columns,))

    def _scores(self, rows: Rows) -> Floats:
        seen = self._counts > 0
        means = self._scaled(self._sums[seen] / self._counts[seen, None])  # (seen, m)
        # Centring keeps distances and reduces rounding errors.
        centre = means.mean(axis=0)  # (m,)
        means = means - centre
        scores = np.full(
            (len(rows), len(seen)), -np.inf
        )  # classes without samples are never predicted
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            x = self._scaled(rows[part]) - centre  # (block, m)
            product = 2 * x @ means.T - (means**2).sum(axis=1)
            scores[part, seen] = product - (x**2).sum(axis=1, keepdims=True)  # −‖x − mean‖²
        return scores

    def _scaled(self, rows: Rows | Floats) -> Floats:
        """Return embeddings in float64, of unit norm for the cosine metric."""
        x = rows.astype(np.float64)
        if self.metric == "cosine":
            x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return x
