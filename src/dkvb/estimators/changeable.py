"""Classifiers that unlearn, rename and merge: every verb checks first, then replaces the state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dkvb._support import validation
from dkvb.estimators.base import Floats, OpenClassifier
from dkvb.estimators.labels import LabelIndex, check_merged
from dkvb.estimators.novelty import unknown_label
from dkvb.estimators.saved_keys import SavedWithKeys
from dkvb.estimators.suggest import suggest


@dataclass(frozen=True)
class AuditRecord:
    """How much an operation changed; never which inputs or labels."""

    operation: str  # "forget_samples", "forget" or "relabel"
    rows: int  # removed, or given another label
    pairs: int  # of what is stored: of a classifier that keeps examples, so many of these


class Changing(Protocol):
    """All that an estimator has learned, as one value that is never changed in place."""

    @property
    def audit(self) -> tuple[AuditRecord, ...]: ...
    @property
    def inference_only(self) -> bool: ...
    def merge(self, other: Self) -> Self: ...


class ChangeableState(Changing, Protocol):
    """What a classifier has learned."""

    @property
    def labels(self) -> LabelIndex: ...
    def sorted_counts(self) -> list[int]: ...
    def forget(self, label: Any) -> Self: ...
    def rename(self, label: Any, new_label: Any) -> Self: ...
    def merge_classes(self, labels: list[Any], into: Any) -> Self: ...


V = TypeVar("V", bound=Changing)
S = TypeVar("S", bound=ChangeableState)


class Changeable(SavedWithKeys, Generic[V]):
    """What estimators share whose state is one value that can lose what was learned, and merge."""

    _state: V

    @abstractmethod
    def _replace_state(self, state: V, unlearned: bool) -> Self:
        """Go on from another state: of more rows, or one from which rows were `unlearned`."""

    @property
    def audit_(self) -> list[AuditRecord]:
        """What was unlearned or given another label: how many rows and pairs, never which."""
        return list(self._fitted().audit)

    def _merged(self, other: Any) -> V:
        """What this and another estimator have learned together."""
        state, name = self._check_changeable("merge"), type(self).__name__
        if not isinstance(other, type(self)):
            raise TypeError(f"other: expected a {name}; got {type(other).__name__}")
        if other is self:
            raise ValueError(
                "other: expected another model; got this one, whose rows would count twice"
            )
        return state.merge(other._check_changeable("merge"))

    def _check_changeable(self, operation: str) -> V:
        """What was learned, if it may be changed."""
        state = self._fitted()
        if state.inference_only:
            raise ValueError(
                f"{operation}: expected a model that can change; got an inference-only copy; "
                "use the model that freeze() made it from"
            )
        return state

    def _fitted(self) -> V:
        check_is_fitted(self, "_state")
        return self._state

    def _begun(self) -> bool:
        return hasattr(self, "_state")


class ChangeableClassifier(OpenClassifier, Changeable[S]):
    """What classifiers share that can lose and merge what they have learned, exactly."""

    novelty_threshold: float | None

    def forget(self, label: Any) -> Self:
        """Unlearn all that was learned of a class, as if it never had been."""
        return self._replace_state(self._check_changeable("forget").forget(label), True)

    def rename(self, label: Any, new_label: Any) -> Self:
        """Give a class another name, which no class has yet; nothing else changes."""
        state = self._check_changeable("rename").rename(label, new_label)
        self._check_unknown(state.labels)
        self._state = state
        return self

    def merge_classes(self, labels: Iterable[Any], into: Any) -> Self:
        """Make one class of several, as if their rows had been learned with the label `into`."""
        state = self._check_changeable("merge_classes")
        known = check_merged(labels, state.labels)
        if known == [into]:
            return self
        merged = state.merge_classes(known, into)
        self._check_unknown(merged.labels)
        return self._replace_state(merged, True)

    def merge(self, other: Self) -> Self:
        """Add all that another classifier of the same kind and keys has learned.

        The result is what one classifier would have learned from the rows of both.
        """
        merged = self._merged(other)
        self._check_unknown(merged.labels)
        return self._replace_state(merged, False)

    @abstractmethod
    def _compared(self, X: ArrayLike) -> tuple[Floats, Floats, NDArray[Any]]:
        """Probabilities (n, Y), novelty (n,) and conditioned rows (n, p) of inputs X (n, m)."""

    def suggest(self, X: ArrayLike, n: int) -> NDArray[np.int64]:
        """Positions of the n inputs in X (k, m) to label next, the most useful first.

        Useful are inputs between classes and unlike those learned; suggestions differ from one
        another, and no predicted class is starved.
        """
        validation.positive_int("n", n)
        return suggest(*self._compared(X), n)

    @property
    def class_count_(self) -> dict[Any, int]:
        """How many rows of each class were learned, by label, in the order of `classes_`."""
        state = self._fitted()
        return dict(zip(state.labels.classes_.tolist(), state.sorted_counts(), strict=True))

    # ------------------------------------------------------------------------------------- checks
    def _check_unknown(self, labels: LabelIndex) -> None:
        """Raise where a class could not be told from inputs above the novelty threshold."""
        if self.novelty_threshold is not None:
            unknown_label(labels)

    def _label_index(self) -> LabelIndex:
        return self._fitted().labels
