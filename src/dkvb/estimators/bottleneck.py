"""The discrete key-value bottleneck as a scikit-learn classifier."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dkvb._support import validation
from dkvb.bottleneck import Codes, Keys, growth
from dkvb.bottleneck.assignment import TEMPERATURE
from dkvb.estimators._keyed import KeyedClassifier
from dkvb.estimators._memory import AuditRecord
from dkvb.estimators.base import Floats, softmax
from dkvb.estimators.explain import Explanation, explain
from dkvb.estimators.novelty import Drift, compare, distance_from_keys, novelty, unknown_label
from dkvb.rules.base import RULES


class BottleneckClassifier(KeyedClassifier):
    """Snap embeddings to frozen keys; learn in the values of the keys selected, and nowhere else.

    `keys` come from `fit_keys`, on any unlabelled rows of the same encoder; without them they are
    fitted to the first rows learned, with `n_codebooks`, `n_pairs`, `key_dim`, `key_method`,
    `key_epochs`, `conditioning` and `n_components`, each by default the rule's own. `rule` says how
    values learn:

    - `"sgd"`, the paper's: `epochs` passes of gradient descent over the rows of each `partial_fit`.
      Unless the first call declares all classes, as the paper does, a hidden column learns for
      those yet to come.
      `value_dtype` "bfloat16" or "float16" stores values in half the memory.
    - `"counts"`: one count a pair and class, in one pass. A pair borrows `smoothing` examples of
      each class from the keys around it; `pooling` of codebooks is by `"posterior"` or, as the
      paper's mean, by `"votes"`.
    - `"least_squares"`: soft reads of all keys (their `temperature`), and values that solve a ridge
      problem from sums. With `ledger=True` the conditioned rows are stored, so that `forget` can
      find those of a class.

    With `prior="uniform"` classes stand on an equal footing in the last two however many examples
    each has; with `"empirical"` frequent classes are favoured. These two do not depend on the
    order of the data, can `merge`, and can `forget_samples`.
    `search` says which keys the first two may use to predict: `"selected"`, those that learning has
    selected at least once (`sgd`, as in the paper's experiments), or `"all"` (`counts`).
    With `reject`, inputs of higher `novelty` are answered "unknown", or −1 if labels are numbers.

    Needs: no task boundaries, no replay, no classes known in advance.
    Memory: m·C·d + C·K·d numbers of `keys`, shared by all classifiers that use them, and C·K·Y
    values (`sgd`), one count for each pair and class seen together (`counts`), or (C·K)² and C·K·Y
    sums (`least_squares`).

    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["ant", "bee", "cat", "dog"], 50)
    >>> X = np.repeat(np.eye(4), 50, axis=0) + rng.normal(scale=0.1, size=(200, 4))
    >>> clf = BottleneckClassifier(rule="counts", n_codebooks=8, n_pairs=16, key_dim=2)
    >>> clf.fit(X, y).score(X, y)
    1.0
    >>> clf.forget("cat").classes_
    array(['ant', 'bee', 'dog'], dtype='<U3')
    """

    def __init__(
        self,
        keys: Keys | None = None,
        *,
        rule: str = "sgd",
        n_codebooks: int | None = None,
        n_pairs: int | None = None,
        key_dim: int | None = None,
        key_method: str | None = None,
        key_epochs: int | None = None,
        conditioning: str | None = None,
        n_components: int | None = None,
        epochs: int = 1,
        batch_size: int = 256,
        learning_rate: float = 0.3,
        label_smoothing: float = 0.1,
        value_dtype: str = "float32",
        search: str | None = None,
        prior: str = "uniform",
        pooling: str = "posterior",
        smoothing: float = 0.025,
        temperature: float = TEMPERATURE,
        ledger: bool = False,
        reject: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.keys = keys
        self.rule = rule
        self.n_codebooks = n_codebooks
        self.n_pairs = n_pairs
        self.key_dim = key_dim
        self.key_method = key_method
        self.key_epochs = key_epochs
        self.conditioning = conditioning
        self.n_components = n_components
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.label_smoothing = label_smoothing
        self.value_dtype = value_dtype
        self.search = search
        self.prior = prior
        self.pooling = pooling
        self.smoothing = smoothing
        self.temperature = temperature
        self.ledger = ledger
        self.reject = reject
        self.random_state = random_state
        self.device = device

    @classmethod
    def with_key_rows(cls, key_rows: Any, *, progress: bool = False, **settings: Any) -> Self:
        """A classifier whose keys are fitted to unlabelled rows."""
        classifier = cls(**settings)
        classifier._check_settings()
        classifier.keys = classifier.fit_keys(key_rows, progress)
        return classifier

    def prepare(self, X: ArrayLike) -> Any:
        """What can be computed once from embeddings and given to any method in their place."""
        keys = self._keys_in_use()
        return X if keys is None else RULES[self.rule](self).prepare(keys, X)

    # ------------------------------------------------------------------ learning and predicting
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from these rows, beside what was learned before.

        `classes` declares labels that will come later, in any call; it is never needed. Where it
        is given, labels in y are among these or known from earlier calls. With `sgd` and all
        classes declared in the first call, values are those of the paper. A whole number in
        `sample_weight` (n,) is how often a row counts, as if it were there so often.
        """
        fresh = not hasattr(self, "_memory")
        return self._learn_from(X, y, classes, fresh, sample_weight)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score (n,), or "unknown" (−1) where `reject` says so."""
        memory, rows = self._ready(X)
        if self.reject is not None and not isinstance(rows, Codes):
            rows = memory.rule.prepare(memory.keys, rows)  # searched once for both
        best = self._scores(memory, rows).argmax(axis=1)  # (n,)
        labels: NDArray[Any] = memory.labels.classes_[best]
        if self.reject is None:
            return labels
        far = novelty(memory.keys, distance_from_keys(memory.keys, rows)) > self.reject
        return np.where(far, unknown_label(memory.labels), labels)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities (n, Y) in the order of `classes_`: the softmax of scores / temperature.

        `counts` fits the temperature to a twentieth of the rows it learned, each scored as if it
        had not been learned, whatever the order they came in; `sgd` was trained with temperature 1.
        """
        memory, rows = self._ready(X)
        return softmax(self._scores(memory, rows) / memory.rule.temperature())

    @property
    def learns_in_epochs(self) -> bool:
        """Whether k calls of one epoch learn what one call of k epochs does."""
        return self.rule == "sgd"

    @property
    def splits_rows(self) -> bool:
        """Whether, of several processes, each learns from its own rows what one would from all."""
        return RULES[self.rule].splits_rows

    # ------------------------------------------------------------------ changing what was learned
    def forget_samples(self, X: ArrayLike, y: ArrayLike, generation: int | None = None) -> Self:
        """Subtract rows that were learned with labels y (n,), as if they never had been.

        A class of which no row is left is gone, unless it was declared. An error, which changes
        nothing, where the rows cannot all have been learned; not every such case shows in sums.
        Once keys have grown, `generation` says which of `generations_` learned these rows.
        """
        memory = self._open("forget_samples")
        rows, targets = self._checked_of(generation, X, y)
        self._memory = memory.forget_samples(rows, targets)
        return self

    def relabel(
        self, X: ArrayLike, y_old: ArrayLike, y_new: ArrayLike, generation: int | None = None
    ) -> Self:
        """Give rows that were learned with labels y_old (n,) the labels y_new (n,)."""
        memory = self._open("relabel")
        rows, old = self._checked_of(generation, X, y_old)
        _, new = self._checked_of(generation, X, y_new)
        self._memory = memory.relabel(rows, old, new)
        return self

    def forget(self, label: Any) -> Self:
        """Subtract all that was learned of a class, as if it never had been."""
        self._memory = self._open("forget").forget(label)
        return self

    def merge(self, other: BottleneckClassifier) -> Self:
        """Add all that another classifier has learned with the same keys and rule.

        The result is what one classifier would have learned from the rows of both.
        """
        memory = self._open("merge")
        if not isinstance(other, BottleneckClassifier):
            raise TypeError(f"other: expected a BottleneckClassifier; got {type(other).__name__}")
        if other is self:
            raise ValueError(
                "other: expected another classifier; got this one, whose rows would count twice"
            )
        self._memory = memory.merge(other._open("merge"))
        return self

    def grow_keys(self, X: ArrayLike, n_new: int | None = None, above: float = 0.95) -> Self:
        """Add up to `n_new` pairs a codebook (by default, an eighth) among rows whose novelty is
        `above` a quantile; nothing happens where there are none.

        New keys take the places of those that learning never selected, and are appended where
        there are no more of these, so that what was learned stays where it is. Only inputs that
        come later snap to them. Call it once most of what is known has been learned.
        """
        memory = self._open("grow_keys")
        if n_new is not None:
            validation.positive_int("n_new", n_new)
        validation.real("above", above, low=0, high=1)
        rows = self._as_rows(X)
        far = novelty(memory.keys, distance_from_keys(memory.keys, rows)) > above
        if far.any():
            rows = rows.rows if isinstance(rows, Codes) else rows
            selected = memory.rule.usage() > 0
            n_new = n_new or max(1, memory.keys.n_pairs // 8)
            keys = growth.grow(memory.keys, rows[far], selected, n_new)
            self._memory = memory.change_keys(keys)
        return self

    def prune(self) -> Self:
        """A smaller copy that predicts the same and cannot learn or forget any more.

        What was kept for calibration, forgetting and merging is gone; so are pairs that cannot be
        read, where `search` is "selected".
        """
        self._ready_memory()
        twin = copy(self)
        twin._memory = twin._memory.sealed()
        twin.keys, twin._sealed = twin._memory.keys, True
        return twin

    # ------------------------------------------------------------------------------- looking at it
    def novelty(self, X: ArrayLike) -> Floats:
        """How far inputs lie from their keys (n,): the share of key-initialisation rows, held out
        from fitting keys, that lie nearer to theirs. Near 1: the keys never saw the like."""
        keys = self._some_keys()
        return novelty(keys, distance_from_keys(keys, self._as_rows(X)))

    def drift(self, X: ArrayLike, reference: ArrayLike) -> Drift:
        """Whether two batches lie equally far from the keys: a test with a p-value.

        If both come from one source, p is below 0.05 in 5 % of the cases. Rows that keys were
        fitted to are no reference for others: they lie nearer.
        """
        keys = self._some_keys()
        distances = (distance_from_keys(keys, self._as_rows(rows)) for rows in (X, reference))
        return compare(keys, *distances)

    def explain(self, x: ArrayLike) -> Explanation:
        """Which pairs voted for which class, and from how many examples, for one input (m,)."""
        if not isinstance(x, Codes):
            x = np.atleast_2d(np.asarray(x))
        memory, rows = self._ready(x)
        if len(rows) != 1:
            raise ValueError(f"x: expected one input; got {len(rows)}; explain them one by one")
        return explain(memory, rows)

    @property
    def keys_(self) -> Keys:
        """The keys in use."""
        return self._memory.keys

    @property
    def generations_(self) -> tuple[Keys, ...]:
        """The keys that were ever learned with, oldest first: more than one if keys have grown."""
        return self._memory.generations

    @property
    def audit_(self) -> list[AuditRecord]:
        """What was forgotten or given another label: how many rows and pairs, never which."""
        return list(self._memory.audit)

    @property
    def examples_(self) -> dict[Any, int]:
        """How many rows of each class were learned, by label, in the order of `classes_`."""
        memory = self._memory
        rows = memory.rows[memory.labels.order].tolist()
        return dict(zip(memory.labels.classes_.tolist(), rows, strict=True))

    @property
    def usage_(self) -> NDArray[np.int64]:
        """How often learning selected each pair (C, K)."""
        check_is_fitted(self, "_memory")
        return self._memory.rule.usage().cpu().numpy()

    def state_tensors(self) -> dict[str, Tensor]:
        """All that was learned, classes sorted: equal models, equal tensors."""
        check_is_fitted(self, "_memory")
        return self._memory.state_tensors()
