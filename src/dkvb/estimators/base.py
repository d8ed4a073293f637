"""Base classes of classifiers that learn from a stream."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dkvb._support import arrow
from dkvb._support.files import State
from dkvb._support.validation import as_float32, embeddings, seed
from dkvb.estimators.answers import Answers
from dkvb.estimators.labels import LabelIndex, check_labels
from dkvb.estimators.serialisation import Saved, labels_from, labels_state

Floats = NDArray[np.float64]
MANY_SCORES = 1 << 20  # of inputs and classes; more are refused where they do not fit in memory
CLASS_WEIGHTS = ("balanced", None)
FEWER_INPUTS = "ask for fewer inputs at a time"
Rows = NDArray[np.float32]
Columns = NDArray[np.int64]


class OpenClassifier(ClassifierMixin, Saved):
    """A classifier that learns call by call, with labels that it was never told of before."""

    n_features_in_: int

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted (Y,)."""
        return self._label_index().classes_

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores (n, Y) in the order of `classes_`; for two classes their difference (n,)."""
        scores = self._sorted_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def ask(self, X: ArrayLike) -> Answers:
        """Labels, probabilities and novelty of X (n, m), as far as the classifier has them; what
        several of them need is computed once."""
        found = (getattr(self, name, None) for name in ("predict_proba", "novelty"))
        probabilities, novelty = (None if method is None else method(X) for method in found)
        return Answers(self.predict(X), self.classes_, probabilities, novelty)

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score (n,)."""

    @abstractmethod
    def _label_index(self) -> LabelIndex:
        """The labels and their columns; AttributeError before anything was learned."""

    @abstractmethod
    def _sorted_scores(self, X: ArrayLike) -> Floats:
        """Scores (n, Y) in the order of `classes_`."""

    def _seed(self, random_state: int | np.random.RandomState | None) -> int:
        """One integer for all that is random from here on."""
        if isinstance(random_state, int | np.integer):
            return seed("random_state", random_state)
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class StreamClassifier(OpenClassifier):
    """A subclass says how to start, how columns are added, how to learn from checked rows, how to
    score rows, and what of it is saved; columns are in order of appearance, and sorted here.
    """

    _labels: LabelIndex

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Discard what was learned, then learn from these rows."""
        return self._learn_from(X, y, classes=None, fresh=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None
    ) -> Self:
        """Learn from these rows, beside what was learned before.

        `classes` declares labels that will come later, in any call; it is never needed. Where it
        is given, labels in y are among these or known from earlier calls.
        """
        return self._learn_from(X, y, classes, fresh=not hasattr(self, "_labels"))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score (n,)."""
        best = self._sorted_scores(X).argmax(axis=1)  # (n,)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    @abstractmethod
    def _start(self, width: int) -> None:
        """Begin an empty model for rows (n, width)."""

    @abstractmethod
    def _grow(self, n_columns: int) -> None:
        """Extend the state to `n_columns` classes; those learned stay."""

    @abstractmethod
    def _learn(self, rows: Rows, columns: Columns) -> None:
        """Learn from rows (n, m) whose labels stand in `columns` (n,)."""

    @abstractmethod
    def _scores(self, rows: Rows) -> Floats:
        """Scores (n, Y), columns in order of appearance."""

    @abstractmethod
    def _learned(self) -> State:
        """What was learned, as tensors and facts."""

    @abstractmethod
    def _recall(self, state: State, n_columns: int) -> None:
        """Know what `_learned` said; every tensor is asked for with its dtype and shape."""

    def _label_index(self) -> LabelIndex:
        return self._labels

    def _begun(self) -> bool:
        return hasattr(self, "_labels")

    def _to_state(self, dtype: str | None = None) -> State:
        return self._learned().with_part("labels", labels_state(self._labels))

    @classmethod
    def _from_file_state(cls, state: State, device: str) -> Self:
        estimator = cls._made(state, device)
        if estimator._begun_with(state):
            learned = state.part("learned")
            labels = labels_from(learned.part("labels"))
            estimator._recall(learned, len(labels))
            estimator._labels = labels
        return estimator

    def _checked(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Rows and their labels (n,), or an error that says what is wrong with them."""
        rows = self._as_rows(X)
        return rows, check_labels(y, len(rows), self)

    def _remember_features(self, X: Any, reset: bool) -> None:
        """Compare feature names and width with those before, or write them down."""
        validate_data(self, X, reset=reset, skip_check_array=True)

    def _as_rows(self, X: Any) -> Any:
        """Rows (n, m) float32, or an error that says what is wrong with them."""
        rows = embeddings(X, self)
        return rows if type(rows) is np.ndarray else as_float32(rows)

    def _learn_from(self, X: Any, y: Any, classes: Any, fresh: bool) -> Self:
        # Every check comes before the first change.
        self._check_settings()
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        rows, targets = self._checked(X, y)
        before = LabelIndex() if fresh else self._labels
        labels = before.after_call(classes, targets)
        self._remember_features(X, reset=fresh)

        if fresh:
            self._start(self.n_features_in_)
        self._grow(len(labels))
        self._labels = labels
        self._learn(rows, labels.indices(targets))
        return self

    def _sorted_scores(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "_labels")
        if not isinstance(X, np.ndarray):
            X = arrow.without_labels(X)
        rows = self._as_rows(X)
        self._remember_features(X, reset=False)
        return self._scores(rows)[:, self._labels.order]  # (n, Y)


def class_sums(rows: Floats, columns: Columns, n_columns: int) -> tuple[Floats, Columns]:
    """Per class, the sum of its rows (Y, m) and their number (Y,)."""
    sums = np.zeros((n_columns, rows.shape[1]))  # (Y, m)
    order = np.argsort(columns, kind="stable")
    present, first = np.unique(columns[order], return_index=True)
    sums[present] = np.add.reduceat(rows[order], first, axis=0)
    return sums, np.bincount(columns, minlength=n_columns).astype(np.int64)


def class_factors(counts: Any) -> Floats:
    """Return the factors (Y,) of class-balanced scores: 1 / √count, 1 on average over classes.

    A class without rows has the factor 0.

    >>> class_factors([1, 4, 0])
    array([1.33333333, 0.66666667, 0.        ])
    """
    counts = np.asarray(counts, dtype=np.float64)
    present = counts > 0
    factors: Floats = np.where(present, np.maximum(counts, 1) ** -0.5, 0.0)
    factors *= present.sum() / max(float(factors.sum()), np.finfo(np.float64).tiny)
    return factors


def softmax(scores: Floats) -> Floats:
    """Probabilities from scores (n, Y)."""
    powers: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def log_softmax(scores: Floats) -> Floats:
    """Logarithms of `softmax`, from scores (n, Y)."""
    lower: Floats = scores - scores.max(axis=1, keepdims=True)
    logs: Floats = lower - np.log(np.exp(lower).sum(axis=1, keepdims=True))
    return logs
