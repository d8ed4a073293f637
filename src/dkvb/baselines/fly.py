"""The FlyModel, after the olfactory system of the fruit fly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dkvb._support.files import State
from dkvb._support.validation import positive_int, real
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier

_BLOCK = 1024  # samples at a time, which bounds memory


class FlyClassifier(StreamClassifier):
    """FlyModel (Shen et al., 2021): sparse random features, saturating sums per class.

    Every sample is scaled to [0, 1]. Each of `n_cells` Kenyon cells adds `n_inputs` random entries
    of it. The `share` of cells with the highest sums stay active, relative to the highest. Learning
    a sample adds `learning_rate` times its active cells to the weights of its class, which are
    capped at 1. The score of a class is the sum of its weights over active cells.

    One epoch learns well. With more epochs the weights of all cells that were ever active reach 1,
    and classes become indistinguishable.

    Needs: no task boundaries. Rehearsal-free and order-invariant; classes need not be known in
    advance.
    Memory: n_cells·Y float64 sums, and n_cells·n_inputs integers of the projection.

    >>> fly = FlyClassifier(n_cells=500, n_inputs=1).partial_fit([[0.0, 1.0, 0.1]], ["b"])
    >>> fly.partial_fit([[1.0, 0.0, 0.2]], ["a"]).predict([[0.1, 1.0, 0.0]])
    array(['b'], dtype='<U1')
    """

    def __init__(
        self,
        *,
        n_cells: int = 10_000,
        n_inputs: int = 32,
        share: float = 0.01,
        learning_rate: float = 0.005,
        epochs: int = 1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_cells = n_cells
        self.n_inputs = n_inputs
        self.share = share
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # two dimensions leave one bit
        return tags

    def _check_settings(self) -> None:
        positive_int("n_cells", self.n_cells)
        positive_int("n_inputs", self.n_inputs)
        real("share", self.share, low=0, high=1, low_open=True)
        real("learning_rate", self.learning_rate, low=0, low_open=True)
        positive_int("epochs", self.epochs)

    def _start(self, width: int) -> None:
        generator = np.random.default_rng(self._seed(self.random_state))
        wired = min(self.n_inputs, width)
        chance = generator.random((self.n_cells, width), dtype=np.float32)
        self._inputs = _highest(chance, wired).astype(np.int32)  # (cells, inputs)
        self._sums = np.zeros((0, self.n_cells))
        self._seen = np.zeros(0, np.bool_)  # (Y,)

    def _projection(self) -> Any:
        """Return the projection as a sparse matrix (cells, m), whose products add up the inputs of
        a cell in their order, whatever the batch."""
        shape, places = (self.n_cells, self.n_features_in_), self._inputs.ravel()
        ends = np.arange(self.n_cells + 1) * self._inputs.shape[1]
        return csr_array((np.ones(len(places), np.float32), places, ends), shape)

    def _grow(self, n_columns: int) -> None:
        new = n_columns - len(self._sums)
        self._sums = np.pad(self._sums, ((0, new), (0, 0)))
        self._seen = np.pad(self._seen, (0, new))

    def _learn(self, rows: Rows, columns: Columns) -> None:
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            active, strength = self._cells(rows[part])
            # Whole numbers: their sum does not depend on the order.
            added = np.rint(strength.astype(np.float64) * _UNIT) * self.epochs
            np.add.at(self._sums, (columns[part, None], active), added)
        self._seen[np.unique(columns)] = True

    def _cells(self, x: Rows) -> tuple[NDArray[np.intp], Rows]:
        """Return the active cells of samples (n, m) and their strengths, both (n, kept)."""
        kept = max(1, int(self.share * self.n_cells))
        low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
        scaled = (x - low) / np.maximum(high - low, _TINY)
        sums = np.ascontiguousarray((self._projection() @ scaled.T).T)  # (n, cells)
        active = _highest(sums, kept)  # (n, kept)
        strength = np.take_along_axis(sums, active, axis=1)
        return active, strength / np.maximum(strength.max(axis=1, keepdims=True), _TINY)

    def _scores(self, rows: Rows) -> Floats:
        weights = np.minimum(self.learning_rate / _UNIT * self._sums, 1.0)  # (Y, cells)
        scores = []
        for start in range(0, len(rows), _BLOCK):
            active, strength = self._cells(rows[start : start + _BLOCK])
            answers = np.zeros((len(active), self.n_cells))
            np.put_along_axis(answers, active, strength, axis=1)
            scores.append(answers @ weights.T)
        result: Floats = np.concatenate(scores)  # (n, Y)
        result[:, ~self._seen] = -np.inf  # classes without samples are never predicted
        return result

    def _learned(self) -> State:
        return State.of(inputs=self._inputs, sums=self._sums, seen=self._seen)

    def _recall(self, state: State, n_columns: int) -> None:
        width = self.n_features_in_
        wired = (self.n_cells, min(self.n_inputs, width))
        inputs = state.array("inputs", np.int32, wired)
        if int(inputs.min()) < 0 or int(inputs.max()) >= width:
            raise state.damaged(f"inputs: expected numbers from 0 to {width - 1}")
        self._inputs = inputs
        self._sums = state.array("sums", np.float64, (n_columns, self.n_cells))
        self._seen = state.array("seen", np.bool_, (n_columns,))


def _highest(values: Rows, k: int) -> NDArray[np.intp]:
    """Return the places of the k highest values of each row (n, k); of equals, the first ones."""
    least = np.partition(values, -k, axis=1)[:, -k, None]
    above, equal = values > least, values == least
    missing = k - above.sum(axis=1, keepdims=True)
    return np.nonzero(above | (equal & (equal.cumsum(axis=1) <= missing)))[1].reshape(-1, k)


_TINY = np.finfo(np.float32).tiny
_UNIT = 2.0**24  # strengths in (0, 1] are learned as whole multiples of 1 / _UNIT
