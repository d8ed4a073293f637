"""RanPAC's head (McDonnell et al., 2023): ridge regression on random features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb._support.validation import check_device, positive_int
from dkvb.bottleneck.assignment import in_blocks
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier
from dkvb.rules.least_squares import ridge, sums
from dkvb.rules.least_squares.serialisation import ridge_sums_from

_LEARNED_ROWS = 2048  # samples whose features are held at a time


class RanPACClassifier(StreamClassifier):
    """Ridge regression from rectified random projections of the embeddings to the classes.

    φ = max(0, xW) with W Gaussian and frozen. Scores are Vᵀφ, where V is solved from Σφφᵀ and Σφyᵀ
    on first use after learning. λ is the smallest whose squared error on one sample in ten, held
    out by a hash of its content, is within 5 % of the lowest, as in the rule `least_squares`.

    Needs: no task boundaries. Rehearsal-free and order-invariant; classes need not be known in
    advance.
    Memory: M² + 2·M·Y float64 and m·M float32 numbers for M = `n_features` (0.9 GB by default), as
    much again while learning, and twice as much while solving.

    >>> ranpac = RanPACClassifier(n_features=64).partial_fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    >>> ranpac.predict([[0.1, 1.0], [2.0, 0.3]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(
        self,
        *,
        n_features: int = 10240,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.n_features = n_features
        self.random_state = random_state
        self.device = device

    @property
    def ridge_(self) -> float:
        """λ, in units of tr(G)/M."""
        return self._solution().lam

    def _check_settings(self) -> None:
        positive_int("n_features", self.n_features)
        check_device(self.device)

    def _start(self, width: int) -> None:
        generator = torch.Generator().manual_seed(self._seed(self.random_state))
        projection = torch.randn(width, self.n_features, generator=generator)  # (m, M)
        self._projection = projection.to(self.device)
        self._sums = sums.empty(self.n_features, device=self.device)
        self._solved: list[ridge.Solution] = []

    def _grow(self, n_columns: int) -> None:
        if n_columns > self._sums.n_columns:
            self._sums = sums.grow_classes(self._sums, n_columns)
            self._solved.clear()

    def _learn(self, rows: Rows, columns: Columns) -> None:
        x, targets = torch.from_numpy(rows), torch.from_numpy(columns).to(self.device)
        batches = (
            (self._features(block), labels, sums.held_out(block).to(self.device))
            for block, labels in zip(
                x.split(_LEARNED_ROWS), targets.split(_LEARNED_ROWS), strict=True
            )
        )
        self._sums = sums.update(self._sums, batches)
        self._solved.clear()

    def _features(self, x: Tensor) -> Tensor:
        """Return φ = max(0, xW) (n, M), independent of the batching."""
        return in_blocks(lambda block: (block.to(self.device) @ self._projection).relu_(), x)

    def _solution(self) -> ridge.Solution:
        if not self._solved:  # a cache, filled on first use after learning
            self._solved.append(ridge.fit(self._sums).solution)
        return self._solved[0]

    def _learned(self) -> State:
        return State.of(projection=self._projection, **self._sums.tensors())

    def _recall(self, state: State, n_columns: int) -> None:
        shape = (self.n_features_in_, self.n_features)
        self._projection = state.tensor("projection", torch.float32, shape, self.device)
        self._sums = ridge_sums_from(state, self.n_features, n_columns, self.device)
        self._solved = []

    def _scores(self, rows: Rows) -> Floats:
        values = self._solution().values  # (M, Y)
        scores = [
            (self._features(block).double() @ values).cpu().numpy()
            for block in torch.from_numpy(rows).split(_LEARNED_ROWS)
        ]
        result: Floats = np.concatenate(scores)  # (n, Y)
        seen = self._sums.total.cpu().numpy() > 0  # (Y,)
        result[:, ~seen] = -np.inf  # classes without samples are never predicted
        return result
