"""The discrete key-value bottleneck as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from dkvb._support import arrow, validation
from dkvb._support.files import State
from dkvb._support.validation import embeddings
from dkvb.bottleneck import growth, sgd
from dkvb.bottleneck.batch import Batch
from dkvb.bottleneck.explain import Explanation
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.bottleneck.key_data import subsample
from dkvb.bottleneck.key_settings import check_keys, warn_of_few_classes
from dkvb.bottleneck.keys import Keys
from dkvb.bottleneck.lazy_rows import picked
from dkvb.bottleneck.novelty import Drift, compare, distance_from_keys, novelty
from dkvb.bottleneck.serialisation import values_from, values_state
from dkvb.bottleneck.sgd import LearnedValues
from dkvb.bottleneck.used_keys import CANDIDATES, candidate_keys, nearest_candidates
from dkvb.bottleneck.values import fetch
from dkvb.estimators.answers import Answers
from dkvb.estimators.base import (
    FEWER_INPUTS,
    MANY_SCORES,
    Floats,
    OpenClassifier,
    log_softmax,
    softmax,
)
from dkvb.estimators.labels import LabelIndex, check_labels
from dkvb.estimators.novelty import unknown_label
from dkvb.estimators.saved_keys import SavedWithKeys
from dkvb.estimators.serialisation import labels_from, labels_state

# What values cannot do, since every SGD step depends on all steps before it.
_KERNEL_ONLY = (
    "class_accuracy", "confusion", "forget", "forget_samples", "loo_score_", "merge",
    "merge_classes", "relabel", "rename", "rows", "suggest", "suspects", "tune",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LearnedState:
    """All that a classifier has learned, as one value: every operation makes the next one.

    An error halfway changes nothing, and threads that predict while another learns see either the
    state before or the state after.
    """

    labels: LabelIndex
    class_counts: NDArray[np.int64]  # (Y,) rows learned of each class
    keys: Keys
    values: LearnedValues
    seed: int
    earlier_keys: tuple[str, ...] = ()  # fingerprints of the keys before they grew
    inference_only: bool = False


class BottleneckClassifier(OpenClassifier, SavedWithKeys):
    """Assign embeddings to frozen keys; learn the values of these keys by SGD, as in the paper.

    Each `partial_fit` makes `epochs` passes over its rows. A step changes only the values that its
    rows have read. Unless the first call declares all classes, as the paper does, a hidden column
    learns for the classes yet to come, and a new class starts as its copy. What was learned depends
    a little on the order of the data. It cannot be unlearned or merged: `KernelClassifier` can.

    Needs: no task boundaries, no rehearsal, no classes known in advance.
    Memory: m·C·d + C·K·d numbers of `keys`, shared by all classifiers that use them, and C·K·Y
    values.

    Parameters
    ----------
    keys : Keys, mapping or None
        Frozen keys from `fit_keys`, on any unlabelled rows of the same encoder. Without them keys
        are fitted to the first rows learned, with the paper's settings, fewer pairs where there are
        few rows, and with what a mapping overrides, such as `{"n_codebooks": 8, "n_pairs": 16}`.
    epochs : int
        Passes over the rows of each call.
    learning_rate : float
        Step size.
    batch_size : int
        Rows per step.
    label_smoothing : float
        Share of the target that is spread over all classes, 0 to 1.
    value_dtype : "float32", "bfloat16" or "float16"
        How values are stored; 16 bits take half the memory. It counts from the next `fit` on.
    candidate_keys : "used" or "all"
        Keys that predictions read: those that learning has used at least once, as in the paper's
        experiments, or all.
    novelty_threshold : float or None
        Inputs of higher `novelty` are answered "unknown", or −1 if labels are numbers.
    random_state : int, RandomState or None
        Random seed of the order of rows, and of keys that are fitted here.
    device : "cpu" or "cuda"
        Where the keys and values are.

    Attributes
    ----------
    keys_ : Keys
        The keys in use.
    classes_ : array (Y,)
        The labels, sorted.
    class_count_ : dict
        Rows learned of each class, by label.
    usage_ : array (C, K)
        How often learning selected each pair.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["ant", "bee", "cat", "dog"], 50)
    >>> X = np.repeat(np.eye(4), 50, axis=0) + rng.normal(scale=0.1, size=(200, 4))
    >>> keys = fit_keys(X, n_codebooks=8, n_pairs=16, key_dim=2)
    >>> clf = BottleneckClassifier(keys, epochs=20, learning_rate=3.0)
    >>> clf.fit(X, y).score(X, y)
    1.0
    """

    _state: LearnedState
    learns_in_epochs = True  # k calls of one epoch equal one call of k epochs

    def __init__(
        self,
        keys: Keys | Mapping[str, Any] | None = None,
        *,
        epochs: int = 1,
        learning_rate: float = 0.3,
        batch_size: int = 256,
        label_smoothing: float = 0.1,
        value_dtype: str = "float32",
        candidate_keys: str = "used",
        novelty_threshold: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.keys = keys
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.label_smoothing = label_smoothing
        self.value_dtype = value_dtype
        self.candidate_keys = candidate_keys
        self.novelty_threshold = novelty_threshold
        self.random_state = random_state
        self.device = device

    def __getattr__(self, name: str) -> NoReturn:
        if name in _KERNEL_ONLY:
            raise AttributeError(
                f"{name}: expected a KernelClassifier, which keeps what it has learned row by row; "
                f"got a {type(self).__name__}, whose values depend on all rows and their order"
            )
        if isinstance(getattr(type(self), name, None), property):
            self._fitted()  # Python asks here for properties that raised NotFittedError
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def with_key_rows(cls, key_rows: Any, *, progress: bool = False, **params: Any) -> Self:
        """Return a classifier whose keys are fitted to unlabelled rows."""
        classifier = cls(**params)
        classifier._check_settings()
        classifier.keys = classifier.fit_keys(key_rows, progress)
        return classifier

    def fit_keys(self, X: Any, progress: bool = False) -> Keys:
        """Return keys of this classifier's sizes from unlabelled rows; see `dkvb.fit_keys`."""
        return fit_keys(
            X,
            **self.key_settings(),
            random_state=validation.seed("random_state", self.random_state),
            device=self.device,
            progress=progress,
        )

    def key_settings(self) -> dict[str, Any]:
        """Return arguments of `fit_keys`: the paper's preset, and what `keys` overrides."""
        return {"preset": "paper", **(self.keys if isinstance(self.keys, Mapping) else {})}

    def batch(self, X: ArrayLike) -> Batch:
        """Return embeddings with their codes, which all methods accept in place of X."""
        return self._batch(X, self._known_or_given_keys())

    # ------------------------------------------------------------------ learning and predicting
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Discard what was learned, then learn from these rows; see `partial_fit`."""
        if hasattr(self, "_state"):
            self._check_changeable("fit")
        return self._learn(X, y, None, sample_weight, None)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from these rows, beside what was learned before.

        Parameters
        ----------
        X : array or tensor (n, m), Batch, or table
            Embeddings, of any dtype of real numbers and on any device. A table (pandas, polars,
            pyarrow, DuckDB, a Hugging Face dataset) has them in a column of lists, and may be
            larger than memory.
        y : array or tensor (n,)
            Labels: strings, whole numbers or booleans; of a table also the name of a column,
            which is guessed unless it is given.
        classes : array, optional
            Labels that will come later, in any call; never needed. Where it is given, labels in y
            are among these or known from earlier calls. If the first call declares all classes,
            values are those of the paper.
        sample_weight : array (n,) of whole numbers, optional
            How often each row counts, as if it were there so often; at most 10⁹ in all.
        """
        before = self._check_changeable("partial_fit") if hasattr(self, "_state") else None
        return self._learn(X, y, classes, sample_weight, before, warn=before is None)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of the highest score (n,), or "unknown" (−1) above the threshold."""
        state, batch, scores = self._scored(X)
        far = None if self.novelty_threshold is None else _novelty(batch)
        return self._named(state, scores, far)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return probabilities (n, Y) in the order of `classes_`: the softmax of the scores."""
        return softmax(self._scored(X)[2])

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Return logarithms of `predict_proba` (n, Y), also where it rounds to 0."""
        return log_softmax(self._scored(X)[2])

    def ask(self, X: ArrayLike) -> Answers:
        """Return labels, probabilities and novelty of X (n, m), with one search and one scoring."""
        batch = self._batch(X, self._fitted().keys)
        far = _novelty(batch)  # first: it needs distances, which give the codes that scores need
        state, _, scores = self._scored(batch)
        return Answers(self._named(state, scores, far), state.labels.classes_, softmax(scores), far)

    # ------------------------------------------------------------------------ changing the model
    def grow_keys(self, X: ArrayLike, n_new: int | None = None, above: float = 0.95) -> Self:
        """Add up to `n_new` pairs per codebook (by default, an eighth) among rows whose novelty is
        `above` a quantile; nothing happens where there are none.

        New keys take the places of those that learning never selected, and are appended where
        there are no more of these, so that what was learned stays where it is. Only inputs that
        come later are assigned to them. Call it once most of what is known has been learned.
        """
        state = self._check_changeable("grow_keys")
        if n_new is not None:
            validation.positive_int("n_new", n_new)
        validation.real("above", above, low=0, high=1)
        batch = self._batch(X, state.keys)
        far = _novelty(batch) > above
        if far.any():
            n_new = n_new or max(1, state.keys.n_pairs // 8)
            grown = growth.grow(state.keys, batch[far].X, state.values.active, n_new)
            self._state = replace(
                state,
                keys=grown,
                values=sgd.add_pairs(state.values, grown.n_pairs),
                earlier_keys=(*state.earlier_keys, state.keys.fingerprint),
            )
        return self

    def freeze(self) -> Self:
        """Return a smaller copy that predicts the same and cannot learn.

        Pairs that predictions cannot read are gone, where `candidate_keys` is "used".
        """
        state = self._fitted()
        keys, number = candidate_keys(state.keys, state.values, self.candidate_keys)
        books = torch.arange(keys.n_codebooks, device=keys.device)[:, None]
        learned = state.values
        kept = LearnedValues(learned.values[books, number], learned.usage[books, number])
        twin = copy(self)
        twin._state = replace(
            state,
            keys=keys,
            values=replace(kept, epoch=learned.epoch),
            earlier_keys=(),
            inference_only=True,
        )
        twin.keys = keys
        return twin

    # ------------------------------------------------------------------------- looking at the model
    def novelty(self, X: ArrayLike) -> Floats:
        """Return the novelty of inputs (n,): the share of key-initialisation rows, held out from
        fitting keys, that lie nearer to their keys. Near 1: the keys never saw the like."""
        return _novelty(self.batch(X))

    def drift(self, X: ArrayLike, reference: ArrayLike) -> Drift:
        """Test if two batches lie equally far from the keys, and return the p-value.

        If both come from one source, p is below 0.05 in 5 % of the cases. Rows that keys were
        fitted to are no reference for others: they lie nearer.
        """
        keys = self._known_or_given_keys()
        return compare(keys, *(distance_from_keys(self._batch(x, keys)) for x in (X, reference)))

    def explain(self, x: ArrayLike) -> Explanation:
        """Return the pairs that voted for each class, for one input (m,)."""
        if not isinstance(x, Batch):
            x = torch.atleast_2d(x) if isinstance(x, Tensor) else np.atleast_2d(np.asarray(x))
        state, batch, scores = self._scored(x)
        if len(batch) != 1:
            raise ValueError(f"x: expected one input; got {len(batch)}; explain them one by one")
        codes = self._codes(state, batch).long()  # (1, C)
        contributions = fetch(state.values.values, codes)[0].double() / codes.shape[1]  # (C, Y)
        pairs = codes[0]
        books = torch.arange(len(pairs), device=pairs.device)
        return Explanation(
            label=state.labels.classes_[scores[0].argmax()].item(),
            classes=state.labels.classes_,
            scores=scores[0],
            pairs=pairs.cpu().numpy(),
            contributions=contributions.cpu().numpy()[:, state.labels.order],
            selected=state.values.usage[books, pairs].cpu().numpy(),
            novelty=float(_novelty(batch)[0]),
        )

    @property
    def keys_(self) -> Keys:
        return self._fitted().keys

    @property
    def class_count_(self) -> dict[Any, int]:
        """Return how many rows of each class were learned, by label."""
        state = self._fitted()
        counts = state.class_counts[state.labels.order].tolist()
        return dict(zip(state.labels.classes_.tolist(), counts, strict=True))

    @property
    def usage_(self) -> NDArray[np.int64]:
        return self._fitted().values.usage.cpu().numpy()

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned, classes sorted: equal models, equal arrays; bfloat16, which
        NumPy has not, as float32."""
        state = self._fitted()
        learned, order = state.values, torch.from_numpy(state.labels.order)
        tensors = {
            "values": learned.values[:, :, order.to(learned.values.device)],
            "usage": learned.usage,
            "epoch": torch.tensor(learned.epoch),
        }
        tensors |= {"unseen": learned.columns[:, :, -1]} if learned.unseen else {}
        return {
            name: (one.float() if one.dtype == torch.bfloat16 else one).cpu().numpy()
            for name, one in tensors.items()
        }

    # -------------------------------------------------------------------------------------- learn
    def _learn(
        self,
        X: Any,
        y: Any,
        classes: Any,
        sample_weight: Any,
        before: LearnedState | None,
        warn: bool = False,
    ) -> Self:
        """Check everything, then replace what was learned in one assignment."""
        self._check_settings()
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        rows, targets, labels = self._checked(X, y, classes, sample_weight, before)
        if before is None:
            if warn and self.keys is None:
                declared = frozenset() if classes is None else _distinct(classes)
                warn_of_few_classes(_distinct(targets), declared)
            state = self._started(rows, labels, open_ended=classes is None)
            if isinstance(rows, Batch) and rows.keys.fingerprint == state.keys.fingerprint:
                batch = rows
            else:  # embeddings, or a batch of other keys than this model begins with
                batch = Batch(state.keys, rows.X if isinstance(rows, Batch) else rows)
        else:
            self._check_same_keys(before)
            state, batch = before, rows
        state = self._with_rows(state, labels, batch, targets)
        if before is None and isinstance(X, Batch):
            self.n_features_in_ = X.shape[1]
        elif before is None:
            validate_data(self, X, reset=True, skip_check_array=True)
        self._state = state
        return self

    def _with_rows(
        self, before: LearnedState, labels: LabelIndex, batch: Batch, y: NDArray[Any]
    ) -> LearnedState:
        """Return the state with rows of labels y (n,) learned, all of them in `labels`."""
        class_index, n_classes = labels.indices(y), len(labels)
        counts = np.bincount(class_index, minlength=n_classes)
        counts += np.pad(before.class_counts, (0, n_classes - len(before.class_counts)))
        C, K, _ = before.keys.keys.shape
        validation.check_memory(
            f"keys: {C} × {K} × {n_classes} values",
            C * K * (n_classes + 1) * before.values.columns.element_size(),
            "use smaller keys, such as fit_keys(X, n_pairs=512), or learn fewer classes in one "
            "model",
            before.keys.device,
        )
        values = sgd.update(
            sgd.add_classes(before.values, n_classes),
            batch.codes,
            torch.from_numpy(class_index).to(before.keys.device),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            label_smoothing=self.label_smoothing,
            seed=before.seed,
        )
        return replace(before, labels=labels, class_counts=counts, values=values)

    def _checked(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, state: LearnedState | None
    ) -> tuple[Any, NDArray[Any], LabelIndex]:
        """Return rows as often as their weights say, their labels (n,), and all labels once these
        are learned, or raise."""
        if state is not None:
            rows = self._batch(X, state.keys)
        elif isinstance(X, Batch):
            rows = X
        else:
            keys = self.keys if isinstance(self.keys, Keys) else None
            rows = self._embeddings(X, keys, fresh=True)
        targets = check_labels(y, rows.shape[0], self)
        if sample_weight is not None:
            chosen = validation.repeated(sample_weight, len(targets))
            rows = rows[chosen] if isinstance(rows, Batch) else picked(rows, chosen)
            targets = targets[chosen]
        known = LabelIndex() if state is None else state.labels
        labels = known.after_call(classes, targets)
        if self.novelty_threshold is not None:
            unknown_label(labels)
        return rows, targets, labels

    def _started(self, rows: Any, labels: LabelIndex, open_ended: bool) -> LearnedState:
        """Return a state that has learned nothing, with the keys given or new ones for rows."""
        keys = self.keys
        if not isinstance(keys, Keys):
            keys = self.fit_keys(subsample(rows.X if isinstance(rows, Batch) else rows))
        keys = keys.to(self.device)
        C, K, _ = keys.keys.shape
        values = sgd.start(C, K, keys.device, self.value_dtype, unseen=open_ended)
        seed = validation.seed("random_state", self.random_state)
        return LearnedState(labels, np.zeros(0, np.int64), keys, values, seed)

    def _check_same_keys(self, before: LearnedState) -> None:
        if not isinstance(self.keys, Keys):
            return
        given = self.keys.fingerprint
        if given not in (before.keys.fingerprint, *before.earlier_keys):
            raise ValueError(
                f"keys: expected those learned with so far; got {given[:8]}; fit starts a new model"
            )

    # ------------------------------------------------------------------------------------- checks
    def _embeddings(self, X: Any, keys: Keys | None, fresh: bool = False) -> Any:
        """Return embeddings (n, m), as wide as the keys if there are any, or raise; unless `fresh`,
        their features are compared with those before."""
        if not isinstance(X, np.ndarray):
            X = arrow.without_labels(X)
        rows = embeddings(X, self, fresh)
        if keys is not None and rows.shape[1] != keys.width:
            raise ValueError(
                f"X: expected width {keys.width}, that of the keys; got {rows.shape[1]}; "
                "use embeddings of the encoder that the keys were fitted to"
            )
        return rows

    def _batch(self, X: Any, keys: Keys) -> Batch:
        """Return X as a batch of these keys."""
        if not isinstance(X, Batch):
            return Batch(keys, self._embeddings(X, keys))
        if X.keys is keys or X.keys.fingerprint == keys.fingerprint:
            return X
        raise ValueError(
            "X: expected embeddings, or a batch of this classifier's own keys; got a batch of "
            "other keys; make it with batch(embeddings)"
        )

    def _check_settings(self) -> None:
        check_keys(self.keys)
        validation.positive_int("epochs", self.epochs)
        validation.real("learning_rate", self.learning_rate, low=0, low_open=True)
        validation.positive_int("batch_size", self.batch_size)
        validation.real("label_smoothing", self.label_smoothing, low=0, high=1)
        validation.one_of("value_dtype", self.value_dtype, sgd.DTYPES)
        validation.one_of("candidate_keys", self.candidate_keys, CANDIDATES)
        if self.novelty_threshold is not None:
            validation.real("novelty_threshold", self.novelty_threshold, low=0, high=1)
        validation.check_device(self.device)

    def _check_changeable(self, operation: str) -> LearnedState:
        """Return what was learned, if it may be changed."""
        state = self._fitted()
        if state.inference_only:
            raise ValueError(
                f"{operation}: expected a classifier that can change; got an inference-only copy; "
                "use the classifier that freeze() made it from"
            )
        return state

    def _fitted(self) -> LearnedState:
        check_is_fitted(self, "_state")
        return self._state

    def _begun(self) -> bool:
        return hasattr(self, "_state")

    def _label_index(self) -> LabelIndex:
        return self._fitted().labels

    def _known_or_given_keys(self) -> Keys:
        if hasattr(self, "_state"):
            return self._state.keys
        if not isinstance(self.keys, Keys):
            raise NotFittedError("There are no keys yet: pass keys, or learn something first.")
        return self.keys.to(self.device)

    # ------------------------------------------------------------------------------------- scores
    def _codes(self, state: LearnedState, batch: Batch) -> Tensor:
        """Return the pairs (n, C) that predictions for rows read."""
        return nearest_candidates(state.keys, state.values, batch, self.candidate_keys)

    def _scored(self, X: Any) -> tuple[LearnedState, Batch, Floats]:
        """Return what was learned, X as a batch, and its scores (n, Y) as `classes_`."""
        state = self._fitted()
        batch = self._batch(X, state.keys)
        n, n_classes = batch.shape[0], len(state.labels)
        if n * n_classes > MANY_SCORES:
            validation.check_memory(f"scores ({n}, {n_classes})", 24 * n * n_classes, FEWER_INPUTS)
        logits = sgd.logits(state.values, self._codes(state, batch))
        scores: Floats = logits.double().cpu().numpy()
        return state, batch, scores[:, state.labels.order]

    def _named(self, state: LearnedState, scores: Floats, far: Floats | None) -> NDArray[Any]:
        """Return the label of the highest of scores (n, Y), or "unknown" above the threshold."""
        labels: NDArray[Any] = state.labels.classes_[scores.argmax(axis=1)]
        if self.novelty_threshold is None or far is None:
            return labels
        return np.where(far > self.novelty_threshold, unknown_label(state.labels), labels)

    def _sorted_scores(self, X: ArrayLike) -> Floats:
        return self._scored(X)[2]

    # -------------------------------------------------------------------------------------- files
    def _known_keys(self) -> list[Keys]:
        return [self._state.keys]

    def _to_state(self, dtype: str | None = None) -> State:
        state = self._state
        facts = {
            "keys": state.keys.fingerprint,
            "earlier_keys": list(state.earlier_keys),
            "inference_only": state.inference_only,
            "seed": state.seed,
        }
        own = State.of(facts, class_counts=state.class_counts)
        own = own.with_part("labels", labels_state(state.labels))
        return own.with_part("values", values_state(state.values, dtype))

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        labels = labels_from(state.part("labels"))
        current, earlier = state.fact("keys", str), state.fact("earlier_keys", list)
        if current not in keys:
            raise state.damaged("keys: expected keys that the file holds or names")
        if not all(isinstance(one, str) for one in earlier):
            raise state.damaged("earlier_keys: expected fingerprints")
        if keys[current].width != self.n_features_in_:
            raise state.damaged("n_features: expected the width of the keys")
        self._state = LearnedState(
            labels,
            state.whole_numbers("class_counts", (len(labels),)),
            keys[current],
            values_from(state.part("values"), keys[current], len(labels)),
            state.whole_number("seed", low=-(1 << 63), high=1 << 64),
            tuple(earlier),
            state.fact("inference_only", bool),
        )


def _novelty(batch: Batch) -> Floats:
    return novelty(batch.keys, distance_from_keys(batch))


def _distinct(labels: Any) -> frozenset[Any]:
    """Return distinct labels as plain values."""
    return frozenset(LabelIndex.from_list(labels).to_list())
