"""k nearest neighbours, which stores all samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dkvb._support.files import State
from dkvb._support.validation import one_of, positive_int
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier

_DISTANCES = 1 << 23  # distances held at a time, with the rows that they are to: 96 MB


class NeighboursClassifier(StreamClassifier):
    """The majority class of the k nearest stored samples; ties go to the nearer neighbours.

    Needs: no task boundaries; classes need not be known in advance. It stores all samples and is a
    reference with unbounded memory.
    Memory: n·m float32 numbers.

    >>> knn = NeighboursClassifier(k=1).partial_fit([[0.0, 1.0], [1.0, 0.0]], ["up", "right"])
    >>> knn.predict([[0.1, 0.9]])
    array(['up'], dtype='<U5')
    """

    def __init__(self, *, k: int = 20, metric: str = "cosine") -> None:
        self.k = k
        self.metric = metric

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return each class's share of the votes (n, Y)."""
        votes = self._sorted_scores(X)
        shares: Floats = votes / votes.sum(axis=1, keepdims=True)
        return shares

    def _check_settings(self) -> None:
        positive_int("k", self.k)
        one_of("metric", self.metric, ("euclidean", "cosine"))

    def _start(self, width: int) -> None:
        self._rows: list[Rows] = []  # parts (n_i, m), joined when first searched
        self._columns = np.zeros(0, np.int64)  # (n,)
        self._n_columns = 0

    def _grow(self, n_columns: int) -> None:
        self._n_columns = n_columns

    def _learn(self, rows: Rows, columns: Columns) -> None:
        self._rows.append(_unit_rows(rows) if self.metric == "cosine" else rows.copy())
        self._columns = np.concatenate([self._columns, columns])

    def _learned(self) -> State:
        return State.of(rows=np.concatenate(self._rows), columns=self._columns)

    def _recall(self, state: State, n_columns: int) -> None:
        columns = state.whole_numbers("columns", (None,), high=n_columns)  # (n,)
        shape = (len(columns), self.n_features_in_)
        self._rows = [state.array("rows", np.float32, shape)]
        self._columns, self._n_columns = columns, n_columns

    def _scores(self, rows: Rows) -> Floats:
        if len(self._rows) > 1:
            self._rows[:] = [np.concatenate(self._rows)]
        stored = self._rows[0]  # (n_stored, m)
        k = min(self.k, len(stored))
        # Centring keeps distances and reduces rounding errors.
        euclidean = self.metric == "euclidean"
        centre = stored.mean(axis=0, dtype=np.float64).astype(np.float32) if euclidean else None
        stored = stored if centre is None else stored - centre
        half = 0.5 * (stored**2).sum(axis=1)  # (n_stored,)
        # Slightly more for nearer neighbours, never enough to outweigh a vote.
        weights = 1 + 0.5 ** np.arange(10, 10 + k)  # (k,)
        votes = np.zeros((len(rows), self._n_columns))
        size = max(1, _DISTANCES // len(stored))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            x = _unit_rows(rows[part]) if centre is None else rows[part] - centre
            nearest = self._columns[_lowest(half - x @ stored.T, k)]  # (block, k)
            block = np.arange(len(nearest))[:, None]
            np.add.at(votes[part], (block, nearest), weights)
        return votes


def _lowest(values: Rows, k: int) -> Columns:
    """Return the places of the k lowest values of each row (n, k), the lowest first."""
    lowest = np.argpartition(values, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, lowest, axis=1), axis=1, kind="stable")
    return np.take_along_axis(lowest, order, axis=1)


def _unit_rows(x: Rows) -> Rows:
    """Return rows of unit norm; rows of zeros stay."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    unit: Rows = x / np.maximum(norms, np.float32(1e-12))
    return unit
