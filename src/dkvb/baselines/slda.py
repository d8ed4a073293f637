"""Streaming linear discriminant analysis (Hayes and Kanan, 2020)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from dkvb._support.files import State
from dkvb._support.validation import one_of, real
from dkvb.estimators.base import (
    Columns,
    Floats,
    Rows,
    StreamClassifier,
    class_sums,
    softmax,
)

_BLOCK = 4096  # samples in float64 at a time, which bounds memory


class SLDAClassifier(StreamClassifier):
    """Linear discriminant analysis with class means and one shared covariance matrix.

    The covariance is (1 − s)·Σ + s·tr(Σ)/m·I with s = `shrinkage`; "oas" chooses s by the oracle
    approximating shrinkage of Chen et al. (2010), which is better for few samples. Class priors are
    equal, so that there are no scores to balance. Deep SLDA updates the covariance with running
    means; here Σxxᵀ is kept, which gives the covariance about the final means in any order of the
    data.

    Needs: no task boundaries. Rehearsal-free and order-invariant; classes need not be known in
    advance.
    Memory: m² + m·Y float64 numbers.

    >>> slda = SLDAClassifier().partial_fit([[0.0, 0.0], [4.0, 0.1]], ["a", "a"])
    >>> slda.partial_fit([[0.0, 1.0], [4.0, 1.1]], ["b", "b"]).predict([[9.0, 0.3], [-5.0, 0.8]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(self, *, shrinkage: float | str = 1e-4) -> None:
        self.shrinkage = shrinkage

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return class probabilities (n, Y) under equal priors."""
        return softmax(self._sorted_scores(X))

    def _check_settings(self) -> None:
        if isinstance(self.shrinkage, str):
            one_of("shrinkage, unless a number", self.shrinkage, ("oas",))
        else:
            real("shrinkage", self.shrinkage, low=0, high=1)

    def _start(self, width: int) -> None:
        self._sums = np.zeros((0, width))  # (Y, m)
        self._counts = np.zeros(0, np.int64)  # (Y,)
        self._second = np.zeros((width, width))  # Σxxᵀ
        self._solved: list[tuple[Floats, Floats]] = []

    def _grow(self, n_columns: int) -> None:
        new = n_columns - len(self._counts)
        self._sums = np.pad(self._sums, ((0, new), (0, 0)))
        self._counts = np.pad(self._counts, (0, new))

    def _learn(self, rows: Rows, columns: Columns) -> None:
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            block = rows[part].astype(np.float64)  # (block, m)
            sums, counts = class_sums(block, columns[part], len(self._counts))
            self._sums += sums
            self._counts += counts
            self._second += block.T @ block
        self._solved.clear()

    def _learned(self) -> State:
        return State.of(sums=self._sums, counts=self._counts, second=self._second)

    def _recall(self, state: State, n_columns: int) -> None:
        m = self.n_features_in_
        self._sums = state.array("sums", np.float64, (n_columns, m))
        self._counts = state.whole_numbers("counts", (n_columns,))
        self._second = state.array("second", np.float64, (m, m))
        self._solved = []

    def _scores(self, rows: Rows) -> Floats:
        if not self._solved:  # a cache, filled on first use after learning
            self._solved.append(self._discriminants())
        weights, bias = self._solved[0]  # (m, seen), (seen,)
        scores = np.full(
            (len(rows), len(self._counts)), -np.inf
        )  # classes without samples are never predicted
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores[part, self._counts > 0] = rows[part].astype(np.float64) @ weights + bias
        return scores

    def _discriminants(self) -> tuple[Floats, Floats]:
        """Return weights Σ⁻¹μ and biases −½ μᵀΣ⁻¹μ of the linear scores."""
        seen = self._counts > 0
        counts = self._counts[seen]  # (seen,)
        means = self._sums[seen] / counts[:, None]  # (seen, m)
        n, m = float(counts.sum()), means.shape[1]
        covariance = (self._second - (means.T * counts) @ means) / n  # (m, m)
        level = float(covariance.trace()) / m
        if level <= 0:  # no variance within classes
            covariance, level = np.eye(m), 1.0
        shrinkage = _oas(covariance, n) if self.shrinkage == "oas" else float(self.shrinkage)
        # At shrinkage 0 directions without any variance would have infinite weight.
        ridge = max(shrinkage, 1e-12) * level
        covariance = (1 - shrinkage) * covariance
        covariance.flat[:: m + 1] += ridge
        centre = means.mean(axis=0)  # reduces rounding errors
        weights = cho_solve(cho_factor(covariance), (means - centre).T)  # (m, seen)
        bias = -0.5 * ((means + centre).T * weights).sum(axis=0)
        return weights, bias


def _oas(covariance: Floats, n: float) -> float:
    """Return the oracle approximating shrinkage from the traces of Σ and Σ² of n samples."""
    m = covariance.shape[0]
    level = float(covariance.trace()) / m
    alpha = float((covariance**2).mean())
    gap = (n + 1) * (alpha - level**2 / m)
    return 1.0 if gap <= 0 else min(1.0, (alpha + level**2) / gap)
