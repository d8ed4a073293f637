"""The kernel regressor as a scikit-learn regressor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from dkvb._support import validation
from dkvb._support.files import State
from dkvb.estimators.base import Floats
from dkvb.memory import serialisation
from dkvb.memory.estimator import KernelEstimator
from dkvb.memory.examples import Examples
from dkvb.memory.regression import RegressionState, Scale

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys

LARGEST = 1e150  # of numbers to learn: beyond, their squares are no numbers any more


class KernelRegressor(RegressorMixin, KernelEstimator[RegressionState]):
    """Kernel ridge regression of numbers over learned examples: scores, counts, coordinates.

    It keeps the embedding of every example, in float16, and its numbers. What was learned is a
    multiset of examples: any order, batching, split and merge give the same bits, and unlearning
    (`forget_samples`) leaves what never having learned would have. Conditioning, kernel and ridge
    strength are chosen by leaving one example out, in `fit` and `tune`, and while there are up to
    1,000 examples whenever their number has doubled. In between, one more example corrects the
    solution at once.

    Numbers are centred by their mean: far from all examples, that is what is predicted. Up to
    12,000 distinct examples are solved for exactly; more as cells of examples that lie together,
    with the mean of their numbers.

    Needs: no ranges known in advance; order-invariant.
    Memory: 2·n·m bytes of examples, and while it learns one by one up to 1 GB.

    Parameters
    ----------
    keys : Keys or None
        Frozen keys from `fit_keys`, whose conditioning of embeddings is used. Without keys the
        conditioning is fitted to what was learned.
    random_state : int, RandomState or None
        Not used: nothing is random. Present for API consistency.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X[:, 0] + np.sin(3 * X[:, 1])
    >>> reg = KernelRegressor().fit(X[:150], y[:150])
    >>> bool(reg.score(X[150:], y[150:]) > 0.7), bool(reg.loo_score_ > 0.7)
    (True, True)
    >>> reg.partial_fit(X[150:], y[150:]).forget_samples(X[:10], y[:10]).n_samples_
    190
    """

    _state: RegressionState

    def __init__(
        self,
        keys: Keys | None = None,
        *,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.keys = keys
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Discard what was learned, learn these examples, and choose all settings.

        Parameters
        ----------
        X : array (n, m), or table
            Embeddings. A table (pandas, polars, pyarrow, DuckDB, a Hugging Face dataset) has them
            in a column of lists.
        y : array (n,) or (n, t)
            What is to be predicted: a number for each row, or t of them.
        sample_weight : array (n,) or None
            Whole numbers: how often each example counts.
        """
        state = self._with_examples(None, X, y, sample_weight).tuned()
        validate_data(self, X, reset=True, skip_check_array=True)
        self._state = state
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn these examples, beside those learned before; see `fit`."""
        before = self._check_changeable("partial_fit") if hasattr(self, "_state") else None
        state = self._with_examples(before, X, y, sample_weight)
        state = state.settled() if state.is_quick else state
        if before is None:
            validate_data(self, X, reset=True, skip_check_array=True)
        self._state = state
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Numbers (n,), or (n, t) where rows of t were learned."""
        state, x = self._solved_for(X)
        return _as_given(state, state.predict(x))

    def forget_samples(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Unlearn examples, given as embeddings with their numbers. Examples that were not all
        learned raise an error, and nothing changes."""
        state = self._check_changeable("forget_samples")
        rows = self._embeddings(X)
        forgotten = state.forget_samples(rows, _numbers(y, len(rows), self))
        return self._replace_state(forgotten, True)

    def merge(self, other: Self) -> Self:
        """Add all that another regressor of the same keys has learned.

        The result is what one regressor would have learned from the rows of both.
        """
        return self._replace_state(self._merged(other), False)

    # --------------------------------------------------------------------------- looking at it
    @property
    def n_samples_(self) -> int:
        """How many examples were learned, and not unlearned since."""
        return self._fitted().n_rows

    @property
    def loo_score_(self) -> float:
        """R² on the learned examples, each predicted by the others; see `loo_kind_`."""
        return float(r2_score(*self._solved().left_out))

    @property
    def loo_kind_(self) -> str:
        """What `loo_score_` is: "leave-one-out" or "held-out"."""
        solution = self._solved().solution
        assert solution is not None
        return solution.kind

    @property
    def setting_(self) -> dict[str, Any]:
        """The conditioning, kernel and ridge strength that were chosen, and `loo_score_`."""
        return super().setting_ | {"score": self.loo_score_}

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, in canonical order: equal sets of examples, equal arrays."""
        state = self._fitted().canonical()
        return serialisation.memory_state(state.memory).arrays | {"numbers": state.table}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # ----------------------------------------------------------------------------------- checks
    def _with_examples(
        self, before: RegressionState | None, X: Any, y: Any, weight: Any
    ) -> RegressionState:
        """The next state with these examples; every check comes before the first change."""
        self._check_settings()
        rows = self._embeddings(X, known=before is not None)
        numbers = _numbers(y, len(rows), self)
        if weight is not None:
            chosen = validation.repeated(weight, len(rows))
            rows, numbers = rows[chosen], numbers[chosen]
        state = before or RegressionState(Examples.empty(rows.shape[1]), self.keys)
        return state.learned(rows, numbers)

    def _check_settings(self) -> None:
        self._check_keys()

    # ------------------------------------------------------------------------------------ files
    def _to_state(self, dtype: str | None = None) -> State:
        state = self._state.canonical()
        part = serialisation.table_state(state)
        if state.scale is not None:
            part = part.with_part("scale", State.of({"known": True}, **vars(state.scale)))
        part = State(part.arrays, part.facts | {"flat": state.flat})
        return serialisation.learned_state(state).with_part("numbers", part)

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        part = state.part("numbers")
        table = serialisation.floats(part, "table", (None, None))
        memory = serialisation.examples_from(state.part("memory"), self.n_features_in_, len(table))
        cells = serialisation.grouping_from(part, len(memory))
        targets, columns = len(table) + cells["n_cells"], table.shape[1] + 1
        known = serialisation.learned_from(
            state, keys, memory, self.n_features_in_, targets, columns
        )
        scale = _scale_from(part.part("scale"), table.shape[1])
        if scale is None and known["solution"] is not None:
            raise state.damaged("scale: expected that of the solution")
        flat = part.fact("flat", bool)
        self._state = RegressionState(**known, **cells, table=table, scale=scale, flat=flat)


def _numbers(y: Any, n: int, estimator: Any) -> Floats:
    """Finite numbers (n,) or (n, t), or an error that says what is wrong with them."""
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, "
            "but the target y is None."
        )
    given = np.asarray(y.detach().cpu() if validation.is_tensor(y) else y)
    if given.dtype.kind == "O":
        try:
            given = given.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError("y: expected numbers; got objects; convert them to float64") from None
    if given.dtype.kind not in "fiub":
        raise TypeError(f"y: expected numbers; got dtype {given.dtype}; convert to float64")
    if given.ndim not in (1, 2) or len(given) != n or not given.size:
        raise ValueError(
            f"y: expected shape ({n},) or ({n}, t), a number or t numbers for each row of X; "
            f"got shape {given.shape}"
        )
    numbers: Floats = given.astype(np.float64) + 0.0  # so that −0 is 0
    if not np.isfinite(numbers).all():
        raise ValueError("y: expected finite numbers; got NaN or infinity; drop those rows")
    if np.abs(numbers).max() > LARGEST:
        raise ValueError(
            f"y: expected numbers between ±{LARGEST:g}; got {np.abs(numbers).max():g}; scale them"
        )
    return numbers


def _as_given(state: RegressionState, rows: Floats) -> Floats:
    return rows[:, 0] if state.flat else rows


def _scale_from(state: State, width: int) -> Scale | None:
    if not state.facts:
        return None
    origin, unit = (serialisation.floats(state, name, (width,)) for name in ("origin", "unit"))
    if (unit <= 0).any():
        raise state.damaged("unit: expected numbers above 0")
    return Scale(origin, unit)
