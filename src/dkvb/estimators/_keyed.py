"""What stands behind the bottleneck classifier's methods: its memory, and the checks on the way."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dkvb._support import process_group
from dkvb._support.files import State
from dkvb.bottleneck import Codes, Keys, fit_keys
from dkvb.bottleneck.fit_keys import FewRowsWarning
from dkvb.estimators._memory import Memory
from dkvb.estimators._saved_keys import SavedWithKeys
from dkvb.estimators._saved_memory import memory_from, memory_state
from dkvb.estimators._settings import check_settings, repeated
from dkvb.estimators.base import Floats, OpenClassifier
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.novelty import unknown_label
from dkvb.rules.base import RULES


class KeyedClassifier(OpenClassifier, SavedWithKeys):
    """From rows to the next memory: every check comes before the first change."""

    rule: str
    n_codebooks: int | None
    n_pairs: int | None
    key_dim: int | None
    key_method: str | None
    key_epochs: int | None
    conditioning: str | None
    n_components: int | None
    reject: float | None
    random_state: int | np.random.RandomState | None
    device: str

    _memory: Memory
    _sealed = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "_memory"):  # also of a shallow copy: it may outlive the first
            self._memory = self._memory.of(self)

    def fit_keys(self, X: Any, progress: bool = False) -> Keys:
        """Keys of this classifier's sizes from unlabelled rows; see `dkvb.fit_keys`."""
        with warnings.catch_warnings():
            if self.n_pairs is None:  # nobody asked for a number that cannot be had
                warnings.simplefilter("ignore", FewRowsWarning)
            return fit_keys(
                X,
                preset="paper",
                **self.key_settings(),
                random_state=self._seed(self.random_state),
                device=self.device,
                progress=progress,
            )

    def key_settings(self) -> dict[str, Any]:
        """What keys are asked for: this classifier's own settings, else its rule's."""
        own = {
            "n_codebooks": self.n_codebooks,
            "n_pairs": self.n_pairs,
            "key_dim": self.key_dim,
            "method": self.key_method,
            "epochs": self.key_epochs,
            "conditioning": self.conditioning,
            "n_components": self.n_components,
        }
        return RULES[self.rule].KEY_SETTINGS | {k: v for k, v in own.items() if v is not None}

    def _learn_from(
        self, X: Any, y: Any, classes: Any, fresh: bool, sample_weight: Any = None
    ) -> Self:
        # Every check comes before the first change, and the new memory takes the old one's place
        # when all is done.
        self._check_settings()
        if self._sealed:
            self._open("fit" if fresh else "partial_fit")
        before = None if fresh else self._memory
        rows, targets = self._checked(X, y)
        if sample_weight is not None:
            chosen = repeated(sample_weight, len(targets))
            rows, targets = rows[chosen], targets[chosen]
        known = LabelIndex() if before is None else before.labels
        labels = known.after_call(classes, *_of_everyone(targets), targets)
        declared = LabelIndex()
        if classes is not None:
            declared.add(classes, "classes")
        if self.reject is not None:
            unknown_label(labels)
        if before is None:
            before = self._begin(rows, open_ended=classes is None)
            if isinstance(rows, Codes) and rows.fingerprint != before.keys.fingerprint:
                rows = rows.rows  # a new beginning, with other keys than before
        else:
            before.check_continued(RULES[self.rule], self.keys)
            self._remember_features(X, reset=False)
        memory = before.learn(labels, frozenset(declared.to_list()), rows, targets)
        if fresh:
            self._remember_features(X, reset=True)
        self._memory = memory
        return self

    def _begin(self, rows: Any, open_ended: bool = True) -> Memory:
        """Nothing learned yet, with the keys given or new ones for these rows."""
        embeddings = rows.rows if isinstance(rows, Codes) else rows
        if self.keys is not None and self.keys.width != embeddings.shape[1]:
            raise ValueError(
                f"X: expected width {self.keys.width}, that of the keys; "
                f"got {embeddings.shape[1]}; "
                "use embeddings of the encoder that the keys were fitted to"
            )
        rule = RULES[self.rule](self)
        rule.seed, rule.open_ended = self._seed(self.random_state), open_ended
        keys = self.fit_keys(embeddings) if self.keys is None else self.keys
        rule.start(keys.to(self.device))
        return Memory(LabelIndex(), np.zeros(0, np.int64), frozenset(), rule)

    def _begun(self) -> bool:
        return hasattr(self, "_memory")

    def _known_keys(self) -> list[Keys]:
        return list(self._memory.generations)

    def _to_state(self, dtype: str | None = None) -> State:
        return memory_state(self._memory, self._sealed, dtype)

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        self._memory = memory_from(state, self, keys)
        self._sealed = state.fact("sealed", bool)
        if self._memory.keys.width != self.n_features_in_:
            raise state.damaged("n_features: expected the width of the keys")

    def _check_settings(self) -> None:
        check_settings(self)

    def _label_index(self) -> LabelIndex:
        return self._memory.labels

    def _sorted_scores(self, X: ArrayLike) -> Floats:
        return self._scores(*self._ready(X))

    def _scores(self, memory: Memory, rows: Any) -> Floats:
        scores: Floats = memory.rule.scores(rows).double().cpu().numpy()
        return scores[:, memory.labels.order]  # (n, Y)

    def _ready(self, X: Any) -> tuple[Memory, Any]:
        memory = self._ready_memory()
        rows = self._as_rows(X)
        self._remember_features(X, reset=False)
        return memory, rows

    def _ready_memory(self) -> Memory:
        check_is_fitted(self, "_memory")
        if not self._memory.rows.any():
            raise NotFittedError("All that was learned has been forgotten: learn something first.")
        return self._memory

    def _open(self, operation: str) -> Memory:
        """The memory, if it may be changed."""
        check_is_fitted(self, "_memory")
        if self._sealed:
            raise ValueError(
                f"{operation}: expected a classifier that can change; got a pruned copy; "
                "use the classifier that it was made from"
            )
        return self._memory

    def _checked_of(self, generation: int | None, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Rows and labels as `_checked`, the rows as codes of an earlier generation if asked."""
        memory = self._memory
        latest = len(memory.earlier)
        if generation is None and latest:
            raise ValueError(
                f"generation: expected 0 to {latest}, since keys have grown: that of the keys "
                "which these rows were learned with; got None"
            )
        if generation in (None, latest):
            rows, targets = self._checked(X, y)
            self._remember_features(X, reset=False)
            return rows, targets
        if generation not in range(latest):
            raise ValueError(f"generation: expected 0 to {latest}; got {generation!r}")
        rows, targets = self._checked(X.rows if isinstance(X, Codes) else X, y)
        return memory.earlier[generation].snap(rows), targets

    def _keys_in_use(self) -> Keys | None:
        return self._memory.keys if hasattr(self, "_memory") else self.keys

    def _some_keys(self) -> Keys:
        keys = self._keys_in_use()
        if keys is None:
            raise NotFittedError("There are no keys yet: pass keys, or learn something first.")
        return keys

    def _as_rows(self, X: Any) -> Any:
        if not isinstance(X, Codes):
            if process_group.world_size() > 1 and len(X) == 0:  # others may have some
                return np.asarray(X, dtype=np.float32)
            return super()._as_rows(X)
        keys = self._keys_in_use()
        if keys is None or X.fingerprint != keys.fingerprint:
            raise ValueError(
                "X: expected embeddings, or codes of this classifier's own keys; got codes of "
                "other keys; make them with prepare(embeddings)"
            )
        return X

    def _remember_features(self, X: Any, reset: bool) -> None:
        if not isinstance(X, Codes):
            super()._remember_features(X, reset)
        elif reset:
            self.n_features_in_ = X.rows.shape[1]


def _of_everyone(targets: NDArray[Any]) -> list[Any]:
    """The labels of each process, of several: all come to the same columns, or the same error."""
    if process_group.world_size() < 2:
        return []
    return process_group.all_gather_objects(np.unique(targets).tolist())
