"""RanPAC's head (McDonnell et al., 2023): ridge regression on random features."""

from __future__ import annotations

import numpy as np

from dkvb._support.files import State
from dkvb._support.hashing import content_hash
from dkvb._support.validation import one_of, positive_int
from dkvb.baselines._ridge import Moments, add_product, fit
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
    ) -> None:
        self.n_features = n_features
        self.class_weight = class_weight
        self.random_state = random_state

    @property
    def ridge_(self) -> float:
        """λ, in units of tr(G)/M."""
        return self._solution()[1]

    def _check_settings(self) -> None:
        positive_int("n_features", self.n_features)
        one_of("class_weight", self.class_weight, CLASS_WEIGHTS)

    def _start(self, width: int) -> None:
        M, generator = self.n_features, np.random.default_rng(self._seed(self.random_state))
        self._projection = generator.standard_normal((width, M), dtype=np.float32)  # (m, M)
        self._gram = np.zeros((2, M, M))  # of samples learned from, and held out
        self._cross = np.zeros((2, M, 0))
        self._counts = np.zeros((2, 0))
        self._solved: list[tuple[Floats, float]] = []

    def _grow(self, n_columns: int) -> None:
        new = n_columns - self._counts.shape[1]
        if new:
            self._cross = np.pad(self._cross, ((0, 0), (0, 0), (0, new)))
            self._counts = np.pad(self._counts, ((0, 0), (0, new)))
            self._solved.clear()

    def _learn(self, rows: Rows, columns: Columns) -> None:
        n_columns = self._counts.shape[1]
        for start in range(0, len(rows), _LEARNED_ROWS):
            part = slice(start, start + _LEARNED_ROWS)
            held = content_hash(rows[part]) % _HELD_OUT == 0
            features = self._features(rows[part])  # (block, M)
            for index, chosen in enumerate((~held, held)):
                phi = features[chosen].astype(np.float64)
                one_hot = np.zeros((len(phi), n_columns))
                one_hot[np.arange(len(phi)), columns[part][chosen]] = 1
                add_product(self._gram[index], phi, phi)
                add_product(self._cross[index], phi, one_hot)
                self._counts[index] += one_hot.sum(axis=0)
        self._solved.clear()

    def _features(self, x: Rows) -> Rows:
        """Return φ = max(0, xW) (n, M), independent of the batching."""
        # In float64 and then rounded: in float32 the order of sums, and with it the last bits,
        # would depend on where in a batch a row stands.
        product = x.astype(np.float64) @ self._projection.astype(np.float64)
        return np.maximum(product, 0).astype(np.float32)

    def _solution(self) -> tuple[Floats, float]:
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
        M = self.n_features
        shapes = {"gram": (2, M, M), "cross": (2, M, n_columns), "counts": (2, n_columns)}
        found = {name: state.array(name, np.float64, shape) for name, shape in shapes.items()}
        for name, sums in found.items():
            if sums.size and not (np.isfinite(sums.min()) and np.isfinite(sums.max())):
                raise state.damaged(f"tensor {name!r}: expected finite numbers")
        self._gram, self._cross, self._counts = found["gram"], found["cross"], found["counts"]
        shape = (self.n_features_in_, M)
        self._projection = state.array("projection", np.float32, shape)
        self._solved = []

    def _scores(self, rows: Rows) -> Floats:
        values = self._solution()[0]  # (M, Y)
        scores = [
            self._features(rows[start : start + _LEARNED_ROWS]).astype(np.float64) @ values
            for start in range(0, len(rows), _LEARNED_ROWS)
        ]
        result: Floats = np.concatenate(scores)  # (n, Y)
        counts = self._counts.sum(axis=0)  # (Y,)
        if self.class_weight == "balanced":
            result *= class_factors(counts)
        result[:, counts == 0] = -np.inf  # classes without samples are never predicted
        return result
