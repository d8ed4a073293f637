"""What estimators share that are read by kernel ridge regression."""

from __future__ import annotations

from copy import copy
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dkvb._support import arrow, validation
from dkvb._support.validation import embeddings
from dkvb.estimators.base import Floats
from dkvb.estimators.changeable import Changeable
from dkvb.estimators.serialisation import are_keys
from dkvb.memory.examples import CHUNK
from dkvb.memory.state import Learned

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys

_SOLVING = RLock()  # one solve at a time: each takes all cores and much memory

S = TypeVar("S", bound=Learned)


class KernelEstimator(Changeable[S], Generic[S]):
    """An estimator whose state is solved for when somebody asks."""

    keys: Keys | None

    def tune(self, *, exact: bool = False, progress: bool = False) -> Self:
        """Choose all settings again; predictions then depend on what was learned alone.

        Parameters
        ----------
        exact : bool
            Whether to solve for every example (or cell), where these are more than 12,000, by
            conjugate gradients: in minutes, with 4·n² bytes of memory where there are so many.
        progress : bool
            Whether to show a progress bar while that goes on.
        """
        self._ready()
        self._state = self._check_changeable("tune").tuned(exact, progress)
        return self

    def prepare(self) -> Self:
        """Find now what the first change needs after a file was opened, about a second's work with
        many examples, so that whoever learns a row next does not wait for it."""
        self._state = self._solved().ready_for_changes()
        return self

    @property
    def is_settled(self) -> bool:
        """Whether predictions wait for nothing: what was learned is solved for, or takes no time
        to be."""
        state = self._ready()
        return state.is_settled or state.is_quick

    @property
    def is_tuning_due(self) -> bool:
        """Whether as much was learned since the last choice of settings as before."""
        state = self._ready()
        return state.is_due and not state.inference_only

    def freeze(self) -> Self:
        """An inference-only copy: it predicts the same, is smaller, and cannot change."""
        twin = copy(self)
        twin._state = self._solved().frozen()
        return twin

    def novelty(self, X: ArrayLike) -> Floats:
        """How far inputs lie from the learned examples (n,): the share of examples whose nearest
        other example is nearer. Near 1: nothing like it was learned."""
        state, x = self._solved_for(X)
        return state.novelty(x)

    @property
    def setting_(self) -> dict[str, Any]:
        """The conditioning, kernel and ridge strength that were chosen, and their score."""
        solution = self._solved().solution
        assert solution is not None
        return vars(solution.setting).copy()

    def _replace_state(self, state: S, unlearned: bool) -> Self:
        """Go on from another state, in which nothing of what was unlearned is left."""
        if unlearned:
            state = state.unlearned()
        elif state.is_quick:
            state = state.settled()
        self._state = state
        return self

    def _ready(self) -> S:
        check_is_fitted(self, "_state")
        state = self._state
        if not state.n_rows:
            raise NotFittedError("All that was learned was unlearned: learn something first.")
        return state

    def _solved(self) -> S:
        """What was learned, with its solution."""
        state = self._ready()
        if not state.is_settled:
            with _SOLVING:
                before = self._ready()
                state = before.settled()
                if self._state is before:  # nobody has learned meanwhile
                    self._state = state
        return state

    def _solved_for(self, X: Any) -> tuple[S, NDArray[np.float32]]:
        state = self._solved()
        return state, self._embeddings(X)

    def _embeddings(self, X: Any, known: bool = True) -> NDArray[np.float32]:
        """Embeddings (n, m), as wide as those before where a width is `known`."""
        if not isinstance(X, np.ndarray):
            X = arrow.without_labels(X)
        rows = embeddings(X, self, fresh=not known)
        if not known and self.keys is not None and self.keys.width != rows.shape[1]:
            raise ValueError(
                f"X: expected width {self.keys.width}, that of the keys; got {rows.shape[1]}; "
                "use embeddings of the encoder that the keys were fitted to"
            )
        if (
            isinstance(rows, np.memmap) and rows.dtype == np.float32
        ):  # read part by part, also later
            for _ in validation.chunks(rows, CHUNK):
                pass
            return rows
        array: NDArray[np.float32] = validation.as_float32(rows)
        return array

    def _known_keys(self) -> list[Keys]:
        return [] if self._state.keys is None else [self._state.keys]

    def _check_keys(self) -> None:
        if self.keys is not None and not are_keys(self.keys):
            raise TypeError(f"keys: expected Keys or None; got {type(self.keys).__name__}")
