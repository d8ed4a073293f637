"""RanPAC's head (McDonnell et al., 2023): ridge regression on random features."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb._support.hashing import content_hash
from dkvb._support.validation import check_device, one_of, positive_int
from dkvb.baselines._blocks import in_blocks
from dkvb.baselines._ridge import Moments, fit
from dkvb.estimators.base import (
    CLASS_WEIGHTS,
    Columns,
    Floats,
    Rows,
    StreamClassifier,
    class_factors,
)

_LEARNED_ROWS = 2048  # samples whose features are held at a time
_HELD_OUT = 10  # one sample in this many is held out to choose λ


class RanPACClassifier(StreamClassifier):
    """Ridge regression from rectified random projections of the embeddings to the classes.

    φ = max(0, xW) with W Gaussian and frozen. Scores are Vᵀφ, where V is solved from Σφφᵀ and Σφyᵀ
    on first use after learning. λ is the smallest whose squared error on one sample in ten, held
    out by a hash of its content, is within 5 % of the lowest.

    With `class_weight="balanced"` the score of a class with n samples is divided by √n, as
    `KernelClassifier` does: ridge regression shrinks scores of rare classes. None is as published.

    Needs: no task boundaries. Rehearsal-free and order-invariant; classes need not be known in
    advance.
    Memory: 2·M² + 2·M·Y float64 and m·M float32 numbers for M = `n_features` (1.7 GB by default),
    and twice as much while solving.

    >>> ranpac = RanPACClassifier(n_features=64).partial_fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    >>> ranpac.predict([[0.1, 1.0], [2.0, 0.3]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(
        self,
        *,
        n_features: int = 10240,
        class_weight: str | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.n_features = n_features
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device

    @property
    def ridge_(self) -> float:
        """λ, in units of tr(G)/M."""
        return self._solution()[1]

    def _check_settings(self) -> None:
        positive_int("n_features", self.n_features)
        one_of("class_weight", self.class_weight, CLASS_WEIGHTS)
        check_device(self.device)

    def _start(self, width: int) -> None:
        generator = torch.Generator().manual_seed(self._seed(self.random_state))
        projection = torch.randn(width, self.n_features, generator=generator)  # (m, M)
        self._projection = projection.to(self.device)
        M = self.n_features
        zeros = partial(torch.zeros, dtype=torch.float64, device=self.device)
        self._gram = zeros((2, M, M))  # of samples learned from, and held out
        self._cross = zeros((2, M, 0))
        self._counts = zeros((2, 0))
        self._solved: list[tuple[Tensor, float]] = []

    def _grow(self, n_columns: int) -> None:
        new = n_columns - self._counts.shape[1]
        if new:
            self._cross = torch.nn.functional.pad(self._cross, (0, new))
            self._counts = torch.nn.functional.pad(self._counts, (0, new))
            self._solved.clear()

    def _learn(self, rows: Rows, columns: Columns) -> None:
        n_columns = self._counts.shape[1]
        for start in range(0, len(rows), _LEARNED_ROWS):
            part = slice(start, start + _LEARNED_ROWS)
            block = torch.from_numpy(rows[part])
            held = torch.from_numpy(content_hash(rows[part]) % _HELD_OUT == 0).to(self.device)
            features = self._features(block).double()  # (block, M)
            labels = torch.from_numpy(columns[part]).to(self.device)
            for index, chosen in enumerate((~held, held)):
                phi = features[chosen]
                one_hot = torch.nn.functional.one_hot(labels[chosen], n_columns).double()
                self._gram[index].addmm_(phi.T, phi)
                self._cross[index].addmm_(phi.T, one_hot)
                self._counts[index] += one_hot.sum(dim=0)
        self._solved.clear()

    def _features(self, x: Tensor) -> Tensor:
        """Return φ = max(0, xW) (n, M), independent of the batching."""
        return in_blocks(lambda block: (block.to(self.device) @ self._projection).relu_(), x)

    def _solution(self) -> tuple[Tensor, float]:
        """Return values (M, Y) and λ."""
        if not self._solved:  # a cache, filled on first use after learning
            learned, held = map(Moments, self._gram, self._cross, self._counts)
            self._solved.append(fit(learned, held))
        return self._solved[0]

    def _learned(self) -> State:
        return State.of(
            projection=self._projection, gram=self._gram, cross=self._cross, counts=self._counts
        )

    def _recall(self, state: State, n_columns: int) -> None:
        M, device = self.n_features, self.device
        shapes = {"gram": (2, M, M), "cross": (2, M, n_columns), "counts": (2, n_columns)}
        found = {
            name: torch.from_numpy(state.array(name, np.float64, shape)).to(device)
            for name, shape in shapes.items()
        }
        for name, sums in found.items():
            if sums.numel() and not all(bool(end.isfinite()) for end in sums.aminmax()):
                raise state.damaged(f"tensor {name!r}: expected finite numbers")
        self._gram, self._cross, self._counts = found["gram"], found["cross"], found["counts"]
        shape = (self.n_features_in_, M)
        self._projection = torch.from_numpy(state.array("projection", np.float32, shape)).to(device)
        self._solved = []

    def _scores(self, rows: Rows) -> Floats:
        values = self._solution()[0]  # (M, Y)
        scores = [
            (self._features(block).double() @ values).cpu().numpy()
            for block in torch.from_numpy(rows).split(_LEARNED_ROWS)
        ]
        result: Floats = np.concatenate(scores)  # (n, Y)
        counts = self._counts.sum(dim=0).cpu().numpy()  # (Y,)
        if self.class_weight == "balanced":
            result *= class_factors(counts)
        result[:, counts == 0] = -np.inf  # classes without samples are never predicted
        return result
