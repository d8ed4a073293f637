"""Numbers instead of classes, by the bottleneck's rule `least_squares`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from dkvb._support import arrow, validation
from dkvb._support.files import State
from dkvb._support.validation import check_device
from dkvb.bottleneck import Keys, fit_keys
from dkvb.bottleneck.assignment import READ_TEMPERATURE, SoftAssignment, in_blocks
from dkvb.estimators._saved_keys import SavedWithKeys
from dkvb.estimators.base import Floats
from dkvb.estimators.parameters import check_keys, key_settings, repeated
from dkvb.estimators.rule_params import keys_from_flat
from dkvb.rules.least_squares import ridge
from dkvb.rules.least_squares.serialisation import ridge_sums_from
from dkvb.rules.least_squares.sums import Batch, Moments, RidgeSums, empty, held_out, update

_ROWS = 1024  # rows whose weights are held at a time


class BottleneckRegressor(RegressorMixin, SavedWithKeys):
    """Ridge regression from soft assignments to frozen keys to one or more numbers.

    `keys` come from `fit_keys`; without them they are fitted to the first rows learned, with what a
    mapping overrides of the preset "least_squares". Learning
    adds to sums, in any order; `forget_samples` takes rows away again. Targets are real numbers,
    so that both hold to the rounding of float64, not bit for bit as for classes. Targets are
    brought to mean 0 and variance 1, from sums, when values are solved for. λ is the one with the
    lowest squared error on one row in ten, held out by a hash of its content.

    Needs no rehearsal; order-invariant.
    Memory: M² + 2·M·Y float64 numbers for M = C·K pairs, and p·M of `keys` and assignments.

    >>> X = np.random.default_rng(0).normal(size=(500, 8))
    >>> y = 3 + X[:, 0] / np.linalg.norm(X, axis=1)
    >>> model = BottleneckRegressor(keys={"n_codebooks": 16, "n_pairs": 16, "key_dim": 4})
    >>> model = model.fit(X[:400], y[:400])
    >>> model.score(X[400:], y[400:]) > 0.8
    True
    """

    def __init__(
        self,
        keys: Keys | Mapping[str, Any] | None = None,
        *,
        read_temperature: float = READ_TEMPERATURE,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.keys = keys
        self.read_temperature = read_temperature
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn from these rows.

        Whole numbers in `sample_weight` (n,) count a row several times.
        """
        return self._learn(X, y, sample_weight, fresh=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from these rows, beside what was learned before: y is (n,) or (n, Y).

        Whole numbers in `sample_weight` (n,) count a row several times.
        """
        return self._learn(X, y, sample_weight, fresh=not hasattr(self, "_sums"))

    def forget_samples(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Take rows learned before away again; nothing tells whether they were."""
        check_is_fitted(self, "_sums")
        rows, targets, _ = self._checked(X, y, fresh=False)
        self._change(rows, targets, sign=-1)
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """The numbers expected for rows X (n, m): (n,) or (n, Y), as learned."""
        check_is_fitted(self, "_sums")
        X = arrow.without_labels(X)
        rows = validate_data(self, X, dtype=np.float32, order="C", reset=False)
        if not self._solved:
            self._solved.append(_solution(self._sums))
        values, mean, scale = self._solved[0]
        found = torch.cat(
            [
                self._assignment(x) @ values * scale + mean
                for _, x in validation.chunks(rows, _ROWS, device=self._assignment.keys.device)
            ]
        )
        numbers: Floats = found.cpu().numpy()
        return numbers[:, 0] if self._one_column else numbers

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learn(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, fresh: bool
    ) -> Self:
        rows, targets, one_column = self._checked(X, y, fresh)
        if sample_weight is not None:
            chosen = repeated(sample_weight, len(rows))
            rows, targets = rows[chosen], targets[chosen]
        if fresh:
            keys = self.keys if isinstance(self.keys, Keys) else self._fit_keys(rows)
            keys = keys.to(self.device)
            self._assignment = SoftAssignment(keys, self.read_temperature)
            self._sums = empty(self._assignment.n_features, targets.shape[1], keys.device)
            self._solved: list[tuple[Tensor, Tensor, Tensor]] = []
            self._one_column = one_column
        self._change(rows, targets, sign=1)
        return self

    def _checked(
        self, X: Any, y: Any, fresh: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], bool]:
        """Rows (n, m), targets (n, Y + 1) with a column of ones, whose sums are those of φ and of
        rows, and whether y had one dimension."""
        self._check_settings()
        X = arrow.without_labels(X)
        rows, numbers = validate_data(
            self, X, y, dtype=np.float32, order="C", multi_output=True, y_numeric=True, reset=fresh
        )
        if fresh and isinstance(self.keys, Keys) and self.keys.width != rows.shape[1]:
            raise ValueError(
                f"X: expected width {self.keys.width}, that of the keys; got {rows.shape[1]}"
            )
        columns = np.asarray(numbers, dtype=np.float64).reshape(len(rows), -1)
        expected = columns.shape[1] if fresh else self._sums.n_columns - 1
        if columns.shape[1] != expected:
            raise ValueError(f"y: expected {expected} numbers a row; got {columns.shape[1]}")
        return rows, np.hstack([columns, np.ones((len(rows), 1))]), numbers.ndim == 1

    def _check_settings(self) -> None:
        validation.real("read_temperature", self.read_temperature, low=0, low_open=True)
        check_device(self.device)
        check_keys(self.keys)

    def _begun(self) -> bool:
        return hasattr(self, "_sums")

    def _known_keys(self) -> list[Keys]:
        return [self._assignment.keys]

    def _to_state(self, dtype: str | None = None) -> State:
        if dtype is not None:
            raise ValueError(f"dtype: expected None, since sums are exact; got {dtype!r}")
        facts = {
            "keys": self._assignment.keys.fingerprint,
            "read_temperature": self._assignment.temperature,
            "one_column": self._one_column,
            "n_columns": self._sums.n_columns,
        }
        return State(self._sums.tensors(), facts)

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        own = keys[state.fact("keys", str)]
        if own.width != self.n_features_in_:
            raise state.damaged("n_features: expected the width of the keys")
        named = state.first_of("read_temperature", "temperature")
        temperature = validation.real(named, state.fact(named, float), low=1e-30)
        self._assignment = SoftAssignment(own, temperature)
        n_columns = state.whole_number("n_columns", low=2)
        self._sums = ridge_sums_from(state, self._assignment.n_features, n_columns, own.device)
        self._one_column = state.fact("one_column", bool)
        self._solved = []

    def _fit_keys(self, rows: NDArray[np.float32]) -> Keys:
        seed = validation.seed("random_state", self.random_state)
        how = key_settings(self.keys, "least_squares")
        return fit_keys(rows, **how, random_state=seed, device=self.device)

    @classmethod
    def _params_from(cls, saved: dict[str, Any]) -> dict[str, Any]:
        params = super()._params_from(saved)
        if "temperature" not in params:
            return params
        kept = {name: params[name] for name in ("random_state", "device")}  # formats 1 and 2
        return {"keys": keys_from_flat(params), "read_temperature": params["temperature"], **kept}

    def _change(self, rows: NDArray[np.float32], targets: NDArray[np.float64], sign: int) -> None:
        device = self._assignment.keys.device

        def batches() -> Iterator[Batch]:
            for part, x in validation.chunks(rows, _ROWS, device=device):
                phi = in_blocks(self._assignment.weights, in_blocks(self._assignment.rows, x))
                yield phi, torch.from_numpy(targets[part]).to(device), held_out(x)

        self._sums = update(self._sums, batches(), sign)
        self._solved = []


def _solution(sums: RidgeSums) -> tuple[Tensor, Tensor, Tensor]:
    """Values (M, Y) for targets of mean 0 and variance 1, and the mean and scale (Y,) they had."""
    total, square = (
        getattr(sums.learned, name) + getattr(sums.held, name) for name in ("total", "square")
    )
    rows = total[-1].clamp(min=1)
    mean = total[:-1] / rows
    variance = (square[:-1] / rows - mean**2).clamp(min=0)
    scale = torch.where(variance > 0, variance, 1.0).sqrt()

    def standardised(part: Moments) -> Moments:
        part = part.rounded()
        n, of_phi = part.total[-1], part.cross[:, -1:]
        return Moments(
            part.gram,
            (part.cross[:, :-1] - of_phi * mean) / scale,
            (part.total[:-1] - n * mean) / scale,
            (part.square[:-1] - 2 * mean * part.total[:-1] + n * mean**2) / scale**2,
        )

    both = RidgeSums(standardised(sums.learned), standardised(sums.held))
    return ridge.fit(both, tolerance=0.0).solution.values, mean, scale
