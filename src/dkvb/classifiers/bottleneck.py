"""The discrete key-value bottleneck as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dkvb import _validate
from dkvb.bottleneck import Codes, Keys, fit_keys
from dkvb.bottleneck.initialise import FewRowsWarning
from dkvb.classifiers._base import Columns, Floats, StreamClassifier, check_device, softmax
from dkvb.classifiers._rules import RULES, Rule


class BottleneckClassifier(StreamClassifier):
    """Snap embeddings to frozen keys; learn in the values of the keys selected, and nowhere else.

    `keys` come from `fit_keys`, on any unlabelled rows of the same encoder; without them they are
    fitted to the first rows learned. `rule` says how values learn:

    - `"sgd"`, the paper's: `epochs` passes of gradient descent over the rows of each `partial_fit`.
    - `"counts"`: one count a pair and class, in one pass; independent of order.

    `search` says which keys predictions may use: `"selected"`, those that learning has selected
    at least once, as in the paper's experiments (rule `sgd`), or `"all"`.

    Needs: no task boundaries, no replay, no classes known in advance.
    Memory: m·C·d + C·K·d numbers of `keys`, shared by all classifiers that use them, and C·K·Y
    values (`sgd`) or one count for each pair and class seen together (`counts`).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = np.repeat(np.eye(4), 50, axis=0) + rng.normal(scale=0.1, size=(200, 4)), np.arange(200) // 50
    >>> clf = BottleneckClassifier(n_codebooks=8, n_pairs=16, key_dim=2, epochs=5)
    >>> clf.fit(X, y).score(X, y)
    1.0
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
        epochs: int = 1,
        batch_size: int = 256,
        learning_rate: float = 0.3,
        label_smoothing: float = 0.1,
        search: str = "selected",
        prior: str = "uniform",
        pooling: str = "posterior",
        smoothing: float = 1.0,
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
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.label_smoothing = label_smoothing
        self.search = search
        self.prior = prior
        self.pooling = pooling
        self.smoothing = smoothing
        self.random_state = random_state
        self.device = device

    def fit_keys(self, X: Any, progress: bool = False) -> Keys:
        """Keys of this classifier's sizes from unlabelled rows; see `dkvb.fit_keys`."""
        own = {
            "n_codebooks": self.n_codebooks,
            "n_pairs": self.n_pairs,
            "key_dim": self.key_dim,
            "method": self.key_method,
            "epochs": self.key_epochs,
        }
        settings = RULES[self.rule].KEY_SETTINGS | {k: v for k, v in own.items() if v is not None}
        with warnings.catch_warnings():
            if self.n_pairs is None:  # nobody asked for a number that cannot be had
                warnings.simplefilter("ignore", FewRowsWarning)
            return fit_keys(
                X,
                **settings,
                random_state=self._seed(self.random_state),
                device=self.device,
                progress=progress,
            )

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

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities (n, Y) in the order of `classes_`."""
        return softmax(self._sorted_scores(X))

    def _keys_in_use(self) -> Keys | None:
        keys: Keys | None = getattr(self, "keys_", self.keys)
        return keys

    def _check_settings(self) -> None:
        _validate.one_of("rule", self.rule, tuple(RULES))
        _validate.positive_int("epochs", self.epochs)
        _validate.positive_int("batch_size", self.batch_size)
        _validate.real("learning_rate", self.learning_rate, low=0, low_open=True)
        _validate.real("label_smoothing", self.label_smoothing, low=0, high=1)
        _validate.real("smoothing", self.smoothing, low=0, low_open=True)
        _validate.one_of("search", self.search, ("selected", "all"))
        _validate.one_of("prior", self.prior, ("uniform", "empirical"))
        _validate.one_of("pooling", self.pooling, ("posterior", "votes"))
        check_device(self.device)
        if self.keys is not None and not isinstance(self.keys, Keys):
            raise TypeError(
                f"keys: expected a Keys object or None; got {type(self.keys).__name__}; "
                "make one with dkvb.fit_keys(unlabelled rows)"
            )

    def _start(self, width: int) -> None:
        if self.keys is not None and self.keys.width != width:
            raise ValueError(
                f"X: expected width {self.keys.width}, that of the keys; got {width}; "
                "use embeddings of the encoder that the keys were fitted to"
            )
        self._seed_ = self._seed(self.random_state)
        if hasattr(self, "keys_"):
            del self.keys_
        self._rule: Rule = RULES[self.rule](self)
        self._n_columns = 0
        if self.keys is not None:
            self._use(self.keys)

    def _use(self, keys: Keys) -> None:
        self.keys_ = keys.to(self.device)
        self._rule.start(self.keys_)
        self._rule.grow(self._n_columns)

    def _grow(self, n_columns: int) -> None:
        self._n_columns = n_columns
        if hasattr(self, "keys_"):
            self._rule.grow(n_columns)

    def _learn(self, rows: Any, columns: Columns) -> None:
        if not hasattr(self, "keys_"):
            self._use(self.fit_keys(rows))
        self._rule.learn(rows, torch.from_numpy(columns).to(self.keys_.device))

    def _scores(self, rows: Any) -> Floats:
        found: Floats = self._rule.scores(rows).double().cpu().numpy()
        return found

    def _as_rows(self, X: ArrayLike) -> Any:
        if not isinstance(X, Codes):
            return super()._as_rows(X)
        keys = self._keys_in_use()
        if keys is None or X.fingerprint != keys.fingerprint:
            raise ValueError(
                "X: expected embeddings, or codes of this classifier's own keys; got codes of other "
                "keys; make them with prepare(embeddings)"
            )
        return X

    def _remember_features(self, X: Any, reset: bool) -> None:
        if isinstance(X, Codes):
            if reset:
                self.n_features_in_ = X.rows.shape[1]
            return
        super()._remember_features(X, reset)

    @property
    def usage_(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How often learning selected each pair (C, K)."""
        check_is_fitted(self, "_labels")
        return self._rule.usage().cpu().numpy()
