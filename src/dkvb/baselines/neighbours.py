"""k nearest neighbours, which stores all samples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from dkvb._support.files import State
from dkvb._support.validation import check_device, one_of, positive_int
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier

_DISTANCES = 1 << 25  # distances held at a time: 128 MB


class NeighboursClassifier(StreamClassifier):
    """The majority class of the k nearest stored samples; ties go to the nearer neighbours.

    Needs: no task boundaries; classes need not be known in advance. It stores all samples and is a
    reference with unbounded memory.
    Memory: n·m float32 numbers.

    >>> knn = NeighboursClassifier(k=1).partial_fit([[0.0, 1.0], [1.0, 0.0]], ["up", "right"])
    >>> knn.predict([[0.1, 0.9]])
    array(['up'], dtype='<U5')
    """

    def __init__(self, *, k: int = 20, metric: str = "cosine", device: str = "cpu") -> None:
        self.k = k
        self.metric = metric
        self.device = device

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return each class's share of the votes (n, Y)."""
        votes = self._sorted_scores(X)
        shares: Floats = votes / votes.sum(axis=1, keepdims=True)
        return shares

    def _check_settings(self) -> None:
        positive_int("k", self.k)
        one_of("metric", self.metric, ("euclidean", "cosine"))
        check_device(self.device)

    def _start(self, width: int) -> None:
        self._rows: list[Tensor] = []  # parts (n_i, m), joined when first searched
        self._columns = np.zeros(0, np.int64)  # (n,)
        self._n_columns = 0

    def _grow(self, n_columns: int) -> None:
        self._n_columns = n_columns

    def _learn(self, rows: Rows, columns: Columns) -> None:
        kept = torch.from_numpy(rows.copy()).to(self.device)
        self._rows.append(_unit_rows(kept) if self.metric == "cosine" else kept)
        self._columns = np.concatenate([self._columns, columns])

    def _learned(self) -> State:
        return State.of(rows=torch.cat(self._rows), columns=self._columns)

    def _recall(self, state: State, n_columns: int) -> None:
        columns = state.whole_numbers("columns", (None,), high=n_columns)  # (n,)
        shape = (len(columns), self.n_features_in_)
        self._rows = [torch.from_numpy(state.array("rows", np.float32, shape)).to(self.device)]
        self._columns, self._n_columns = columns, n_columns

    def _scores(self, rows: Rows) -> Floats:
        if len(self._rows) > 1:
            self._rows[:] = [torch.cat(self._rows)]
        stored = self._rows[0]  # (n_stored, m)
        k = min(self.k, len(stored))
        # Centring keeps distances and reduces rounding errors.
        centre = stored.mean(dim=0) if self.metric == "euclidean" else torch.zeros_like(stored[0])
        stored = stored - centre if self.metric == "euclidean" else stored
        half = 0.5 * (stored**2).sum(dim=1)  # (n_stored,)
        # Slightly more for nearer neighbours, never enough to outweigh a vote.
        weights = 1 + 0.5 ** np.arange(10, 10 + k)  # (k,)
        votes = np.zeros((len(rows), self._n_columns))
        size = max(1, _DISTANCES // len(stored))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            x = torch.from_numpy(rows[part]).to(self.device)
            x = _unit_rows(x) if self.metric == "cosine" else x - centre
            nearness = torch.addmm(-half, x, stored.T)  # (block, n_stored)
            nearest = self._columns[nearness.topk(k, dim=1).indices.cpu().numpy()]  # (block, k)
            block = np.arange(len(nearest))[:, None]
            np.add.at(votes[part], (block, nearest), weights)
        return votes


def _unit_rows(x: Tensor) -> Tensor:
    """Return rows of unit norm; rows of zeros stay."""
    return torch.nn.functional.normalize(x, dim=1)
