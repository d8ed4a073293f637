"""The discrete key-value bottleneck as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from dkvb._support import arrow, process_group, validation
from dkvb._support.files import State
from dkvb.bottleneck import Batch, Keys, fit_keys, growth
from dkvb.bottleneck.batch import embeddings
from dkvb.bottleneck.key_data import subsample
from dkvb.bottleneck.lazy_rows import picked
from dkvb.estimators import journal
from dkvb.estimators.answers import Answers
from dkvb.estimators.base import FEWER_INPUTS, MANY_SCORES, Floats, log_softmax, softmax
from dkvb.estimators.changeable import ChangeableClassifier, NeedsExamples
from dkvb.estimators.explain import Explanation, explain
from dkvb.estimators.labels import LabelIndex, check_labels
from dkvb.estimators.learned_state import LearnedState
from dkvb.estimators.novelty import Drift, compare, distance_from_keys, novelty, unknown_label
from dkvb.estimators.parameters import (
    check_keys,
    key_settings,
    refuse_unknown,
    repeated,
    warn_of_few_classes,
    without_unknown,
)
from dkvb.estimators.rule_params import fitted_rule, params_from_flat, rule_from
from dkvb.rules import Rule, make_rule
from dkvb.rules.base import check_countable

CODES_AT_ONCE = 1 << 22  # that are searched for and learned at a time


@without_unknown
class BottleneckClassifier(ChangeableClassifier[LearnedState]):
    """Assign embeddings to frozen keys; learn in the values of these keys, and nowhere else.

    Needs: no task boundaries, no rehearsal, no classes known in advance.
    Memory: m·C·d + C·K·d numbers of `keys`, shared by all classifiers that use them, and C·K·Y
    values (`sgd`), one count for each pair and class seen together (`counts`), or (C·K)² and C·K·Y
    sums (`least_squares`).

    Parameters of a rule belong to the rule: `rule=rules.Counts(pseudocount=0.02)`, or
    `set_params(rule__pseudocount=0.02)`, which counts from the next `fit` on. Parameters that
    change predictions only may be set on the fitted rule, `clf.rule_.set_params(pseudocount=0.02)`.
    So is `class_weight` ("balanced" unless given, or None) one of the rules `counts` and
    `least_squares`: `rule=rules.Counts(class_weight=None)`.

    Parameters
    ----------
    keys : Keys, mapping or None
        Frozen keys from `fit_keys`, on any unlabelled rows of the same encoder. Without them keys
        are fitted to the first rows learned, with the preset of the rule, and with what a mapping
        overrides, such as `{"n_codebooks": 8, "n_pairs": 16}`.
    rule : "counts", "sgd" or "least_squares", or an object
        How values learn: `rules.Counts`, `rules.SGD` or `rules.LeastSquares`.
    novelty_threshold : float or None
        Inputs of higher `novelty` are answered "unknown", or −1 if labels are numbers.
    random_state : int, RandomState or None
        Random seed, of keys that are fitted here and of `rules.SGD`.
    device : "cpu" or "cuda"
        Where the keys and values are.

    Attributes
    ----------
    rule_ : Rule
        The fitted rule.
    keys_, key_versions_ : Keys, tuple of Keys
        The keys in use, and all that were learned with.
    classes_ : array (Y,)
        The labels, sorted.
    class_count_ : dict
        Rows learned of each class, by label.
    audit_ : list of AuditRecord
        What was unlearned or relabelled: how many rows and pairs, never which.
    usage_ : array (C, K)
        How often learning selected each pair.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["ant", "bee", "cat", "dog"], 50)
    >>> X = np.repeat(np.eye(4), 50, axis=0) + rng.normal(scale=0.1, size=(200, 4))
    >>> clf = BottleneckClassifier(keys={"n_codebooks": 8, "n_pairs": 16, "key_dim": 2})
    >>> clf.fit(X, y).score(X, y)
    1.0
    >>> clf.forget("cat").classes_
    array(['ant', 'bee', 'dog'], dtype='<U3')
    """

    _state: LearnedState
    loo_score_ = NeedsExamples()
    class_accuracy = NeedsExamples()
    confusion = NeedsExamples()
    suspects = NeedsExamples()

    def __init__(
        self,
        keys: Keys | Mapping[str, Any] | None = None,
        rule: str | Rule = "counts",
        *,
        novelty_threshold: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
        **unknown: Any,
    ) -> None:
        refuse_unknown("BottleneckClassifier", unknown)
        self.keys = keys
        self.rule = rule
        self.novelty_threshold = novelty_threshold
        self.random_state = random_state
        self.device = device

    @classmethod
    def with_key_rows(cls, key_rows: Any, *, progress: bool = False, **params: Any) -> Self:
        """A classifier whose keys are fitted to unlabelled rows."""
        classifier = cls(**params)
        classifier._check_settings()
        classifier.keys = classifier.fit_keys(key_rows, progress)
        return classifier

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the rule as `rule__pseudocount`; they count from the next
        `fit` on, `novelty_threshold` from now on."""
        if isinstance(self.rule, str) and any(name.startswith("rule__") for name in params):
            self.rule = make_rule(params.pop("rule", self.rule))
        super().set_params(**params)
        return self

    def fit_keys(self, X: Any, progress: bool = False) -> Keys:
        """Keys of this classifier's sizes from unlabelled rows; see `dkvb.fit_keys`."""
        return fit_keys(
            X,
            **self.key_settings(),
            random_state=validation.seed("random_state", self.random_state),
            device=self.device,
            progress=progress,
        )

    def key_settings(self) -> dict[str, Any]:
        """Arguments of `fit_keys`: the rule's preset, and what `keys` overrides."""
        return key_settings(self.keys, make_rule(self.rule).preset)

    def batch(self, X: ArrayLike) -> Batch:
        """Embeddings whose codes are searched for once, accepted by all methods in place of X."""
        return self._batch(X, self._known_or_given_keys())

    # ------------------------------------------------------------------ learning and predicting
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Discard what was learned, then learn from these rows; see `partial_fit`."""
        if hasattr(self, "_state"):
            self._check_changeable("fit")
        return self._learn(X, y, sample_weight=sample_weight)

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
            are among these or known from earlier calls. With `rules.SGD` and all classes declared
            in the first call, values are those of the paper.
        sample_weight : array (n,) of whole numbers, optional
            How often each row counts, as if it were there so often; at most 10⁹ in all. Weights
            with a fraction are refused, since counts and sums would no longer be exact.
        """
        before = self._check_changeable("partial_fit") if hasattr(self, "_state") else None
        return self._learn(X, y, classes, sample_weight, before, first_of_many=before is None)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score (n,), or "unknown" (−1) above `novelty_threshold`."""
        state, batch, scores = self._scored(X)
        labels: NDArray[Any] = state.labels.classes_[scores.argmax(axis=1)]
        if self.novelty_threshold is None:
            return labels
        far = novelty(state.keys, distance_from_keys(batch)) > self.novelty_threshold
        return np.where(far, unknown_label(state.labels), labels)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities (n, Y) in the order of `classes_`: the softmax of scores / temperature.

        `counts` fits the temperature to rows that it keeps as a sketch of codes, of bounded size,
        each scored as if it had not been learned; the order of the rows does not matter. `sgd` was
        trained with temperature 1.
        """
        state, _, scores = self._scored(X)
        return softmax(scores / state.rule.softmax_temperature())

    def ask(self, X: ArrayLike) -> Answers:
        """Labels, probabilities and novelty of X (n, m), with one search and one scoring."""
        keys = self._ready().keys
        batch = self._batch(X, keys)
        # Novelty first: it needs distances, which give the codes that scores need, too.
        far = novelty(keys, distance_from_keys(batch))
        state, _, scores = self._scored(batch)
        probabilities = softmax(scores / state.rule.softmax_temperature())
        labels = state.labels.classes_[scores.argmax(axis=1)]
        if self.novelty_threshold is not None:
            labels = np.where(far > self.novelty_threshold, unknown_label(state.labels), labels)
        return Answers(labels, state.labels.classes_, probabilities, far)

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Logarithms of `predict_proba` (n, Y), also where a probability is too small to hold."""
        state, _, scores = self._scored(X)
        return log_softmax(scores / state.rule.softmax_temperature())

    @property
    def learns_in_epochs(self) -> bool:
        """Whether k calls of one epoch learn what one call of k epochs does."""
        return make_rule(self.rule).learns_in_epochs

    @property
    def splits_rows(self) -> bool:
        """Whether, of several processes, each learns from its own rows what one would from all."""
        return make_rule(self.rule).splits_rows

    # ------------------------------------------------------------------------------------ journals
    def journal_record(self, X: ArrayLike, y: ArrayLike) -> State:
        """What must be kept of rows to learn them again with `replay`, checked as `partial_fit`
        checks them: codes or conditioned rows, and labels. Nothing is learned."""
        state = self._check_changeable("partial_fit")
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        batch, targets, _ = self._checked(X, y, None, state)
        return journal.record_of(state, batch, targets)

    def replay(self, record: State) -> int:
        """Learn what `journal_record` described, with the same result as `partial_fit`; returns the
        number of rows."""
        state = self._check_changeable("partial_fit")
        batch, targets = journal.rows_from(record, state)
        labels = state.labels.copy()
        labels.add(targets)  # which were checked before they were journaled
        self._check_unknown(labels)
        self._state = _learned(state, labels, frozenset(), batch, targets)
        return len(targets)

    def relabel_record(self, X: ArrayLike, y_old: ArrayLike, y_new: ArrayLike) -> State:
        """What must be kept of `relabel`, checked, to do it again with `replay_relabel`."""
        copy(self).relabel(X, y_old, y_new)
        record = State().with_part("old", self.journal_record(X, y_old))
        return record.with_part("new", self.journal_record(X, y_new))

    def replay_relabel(self, record: State) -> int:
        """Do what `relabel_record` described; returns the number of rows."""
        state = self._check_changeable("relabel")
        without = state.forget_samples(*journal.rows_from(record.part("old"), state))
        self._state = without
        count = self.replay(record.part("new"))
        relabelled = replace(without.audit[-1], operation="relabel")
        self._state = replace(self._state, audit=(*state.audit, relabelled))
        return count

    # ------------------------------------------------------------------ changing what was learned
    def forget_samples(self, X: ArrayLike, y: ArrayLike, key_version: int | None = None) -> Self:
        """Unlearn rows that were learned with labels y (n,), as if they never had been.

        A class of which no row is left is gone, unless it was declared. An error, which changes
        nothing, where the rows cannot all have been learned; not every such case shows in sums.
        Once keys have grown, `key_version` is the index in `key_versions_` of the keys that these
        rows were learned with.
        """
        state = self._check_changeable("forget_samples")
        batch, targets = self._checked_of_version(key_version, X, y, state)
        self._state = state.forget_samples(batch, targets)
        return self

    def relabel(
        self, X: ArrayLike, y_old: ArrayLike, y_new: ArrayLike, key_version: int | None = None
    ) -> Self:
        """Give rows that were learned with labels y_old (n,) the labels y_new (n,)."""
        state = self._check_changeable("relabel")
        batch, old = self._checked_of_version(key_version, X, y_old, state)
        new = check_labels(y_new, len(batch), self)
        self._check_unknown(state.labels.after_call(None, new, name="y_new"))
        without = state.forget_samples(batch, old)
        labels = without.labels.after_call(None, new, name="y_new")
        changed = _learned(without, labels, frozenset(), batch, new)
        record = replace(without.audit[-1], operation="relabel")
        self._state = replace(changed, audit=(*state.audit, record))
        return self

    def tune(self) -> Self:
        """Choose λ of `rules.LeastSquares` again; predictions then depend on the set of examples
        alone. The other rules choose nothing."""
        state = self._check_changeable("tune")
        self._state = replace(state, rule=state.rule.tune())
        return self

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
        far = novelty(state.keys, distance_from_keys(batch)) > above
        if far.any():
            n_new = n_new or max(1, state.keys.n_pairs // 8)
            grown = growth.grow(state.keys, batch[far].X, state.rule.usage() > 0, n_new)
            self._state = state.with_keys(grown)
        return self

    def freeze(self) -> Self:
        """A smaller, inference-only copy: it predicts the same and cannot learn or unlearn.

        What was kept for calibration, unlearning and merging is gone; so are pairs that cannot be
        read, where `candidate_keys` is "used".
        """
        frozen = self._ready().freeze()
        twin = copy(self)
        twin._state, twin.keys = frozen, frozen.keys
        return twin

    # ------------------------------------------------------------------------------- looking at it
    def novelty(self, X: ArrayLike) -> Floats:
        """How far inputs lie from their keys (n,): the share of key-initialisation rows, held out
        from fitting keys, that lie nearer to theirs. Near 1: the keys never saw the like."""
        batch = self.batch(X)
        return novelty(batch.keys, distance_from_keys(batch))

    def _compared(self, X: ArrayLike) -> tuple[Floats, Floats, Tensor]:
        state, batch, scores = self._scored(X)
        chunks = batch.chunks(batch.keys.chunk_rows)
        rows = torch.cat([batch.keys.conditioning(x) for _, x in chunks])
        far = novelty(batch.keys, distance_from_keys(batch))
        return softmax(scores / state.rule.softmax_temperature()), far, rows

    def drift(self, X: ArrayLike, reference: ArrayLike) -> Drift:
        """Whether two batches lie equally far from the keys: a test with a p-value.

        If both come from one source, p is below 0.05 in 5 % of the cases. Rows that keys were
        fitted to are no reference for others: they lie nearer.
        """
        keys = self._known_or_given_keys()
        return compare(keys, *(distance_from_keys(self._batch(x, keys)) for x in (X, reference)))

    def explain(self, x: ArrayLike) -> Explanation:
        """Which pairs voted for which class, and from how many examples, for one input (m,)."""
        state = self._ready()
        if not isinstance(x, Batch):
            x = torch.atleast_2d(x) if isinstance(x, Tensor) else np.atleast_2d(np.asarray(x))
        batch = self._batch(x, state.keys)
        if len(batch) != 1:
            raise ValueError(f"x: expected one input; got {len(batch)}; explain them one by one")
        return explain(state, batch)

    @property
    def rule_(self) -> Rule:
        return self._fitted().rule

    @property
    def keys_(self) -> Keys:
        return self._fitted().keys

    @property
    def key_versions_(self) -> tuple[Keys, ...]:
        return self._fitted().key_versions

    @property
    def usage_(self) -> NDArray[np.int64]:
        return self._fitted().rule.usage().cpu().numpy()

    def state_tensors(self) -> dict[str, Tensor]:
        """All that was learned, classes sorted: equal models, equal tensors."""
        return self._fitted().state_tensors()

    # -------------------------------------------------------------------- one way in, for all ways
    def _learn(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        before: LearnedState | None = None,
        first_of_many: bool = False,
    ) -> Self:
        """Check everything, then replace what was learned in one assignment."""
        rule = self._checked_rule()
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        rows, targets, labels = self._checked(X, y, classes, before)
        if sample_weight is not None:
            chosen = repeated(sample_weight, len(targets))
            rows = rows[chosen] if isinstance(rows, Batch) else picked(rows, chosen)
            targets = targets[chosen]
        declared = frozenset() if classes is None else _distinct(classes)
        if before is None:
            if first_of_many and self.keys is None:
                warn_of_few_classes(_distinct(targets), declared)
            state = self._started(rule, rows, labels, open_ended=classes is None)
            keys = state.rule.keys_
            if isinstance(rows, Batch) and rows.keys.fingerprint == keys.fingerprint:
                batch = rows
            else:  # embeddings, or a batch of other keys than this model begins with
                batch = Batch(keys, rows.X if isinstance(rows, Batch) else rows)
        else:
            before.check_continued(rule, self.keys)
            state, batch = before, rows
        n, size = len(targets), max(1, CODES_AT_ONCE // len(batch.keys.keys))
        # The codes of a batch that was given are kept for whoever gave it.
        at_once = n <= size or isinstance(X, Batch) or not state.rule.splits_rows
        if at_once or process_group.world_size() > 1:
            state = _learned(state, labels, declared, batch, targets)
        else:  # what rules add up needs no more than some codes at a time
            for part in (slice(start, start + size) for start in range(0, n, size)):
                state = _learned(state, labels, declared, batch[part], targets[part])
        if before is None and isinstance(X, Batch):
            self.n_features_in_ = X.shape[1]
        elif before is None:
            validate_data(self, X, reset=True, skip_check_array=True)
        self._state = state
        return self

    def _checked(
        self, X: Any, y: Any, classes: Any, state: LearnedState | None
    ) -> tuple[Any, NDArray[Any], LabelIndex]:
        """Rows, their labels (n,), and all labels once these are learned; or an error that says
        what is wrong with them. Every way to learn comes through here."""
        if state is not None:
            rows = self._batch(X, state.rule.keys_)
        elif isinstance(X, Batch):
            rows = X
        else:
            keys = self.keys if isinstance(self.keys, Keys) else None
            rows = self._embeddings(X, keys, fresh=True)
        several = process_group.world_size() > 1
        targets = check_labels(y, rows.shape[0], self)
        known = LabelIndex() if state is None else state.labels
        given = [targets]
        if several:  # all come to the same class indices, or the same error
            given = [*process_group.all_gather_objects(np.unique(targets).tolist()), targets]
        labels = known.after_call(classes, *given)
        if self.novelty_threshold is not None:
            unknown_label(labels)
        return rows, targets, labels

    def _started(self, rule: Rule, rows: Any, labels: LabelIndex, open_ended: bool) -> LearnedState:
        """Nothing learned yet, with the keys given or new ones for these rows."""
        keys = self.keys
        if not isinstance(keys, Keys):
            keys = self.fit_keys(subsample(rows.X if isinstance(rows, Batch) else rows))
        if str(keys.keys.device) != self.device:
            keys = keys.to(self.device)
        seed = self.random_state
        if not isinstance(seed, int):
            seed = validation.seed("random_state", seed)
        fitted = clone(rule).start(keys, seed=seed, open_ended=open_ended)
        return LearnedState(labels, np.zeros(0, np.int64), frozenset(), fitted)

    def _embeddings(self, X: Any, keys: Keys | None, fresh: bool = False) -> Any:
        """Embeddings (n, m), as wide as the keys if there are any, or an error that says what is
        wrong with them; unless `fresh`, with the features of those before."""
        if getattr(X, "shape", ())[:1] == (0,) and process_group.world_size() > 1:
            return np.asarray(X, dtype=np.float32)  # other processes may have rows
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
        """X as a batch of these keys."""
        if not isinstance(X, Batch):
            return Batch(keys, self._embeddings(X, keys))
        if X.keys is keys or X.keys.fingerprint == keys.fingerprint:
            return X
        raise ValueError(
            "X: expected embeddings, or a batch of this classifier's own keys; got a batch of "
            "other keys; make it with batch(embeddings)"
        )

    def _checked_of_version(
        self, key_version: int | None, X: Any, y: Any, state: LearnedState
    ) -> tuple[Batch, NDArray[Any]]:
        """Rows and labels, the rows with the codes that an earlier version of the keys gave."""
        latest = len(state.earlier_keys)
        if key_version is None and latest:
            raise ValueError(
                f"key_version: expected 0 to {latest}, since keys have grown: that of the keys "
                "which these rows were learned with; got None"
            )
        if key_version not in (None, *range(latest + 1)):
            raise ValueError(f"key_version: expected 0 to {latest}; got {key_version!r}")
        keys = state.keys if key_version is None else state.key_versions[key_version]
        if isinstance(X, Batch) and X.keys.fingerprint != keys.fingerprint and X.X is not None:
            X = Batch(keys, X.X) if key_version is not None else X
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        batch = self._batch(X, keys)
        return batch, check_labels(y, len(batch), self)

    def _check_settings(self) -> None:
        self._checked_rule()
        if hasattr(self, "_state"):
            self._state.rule.check_params()

    def _checked_rule(self) -> Rule:
        """The rule; an error for a parameter of it or of the classifier that cannot be used."""
        rule = make_rule(self.rule)
        rule.check_params()
        if not isinstance(self.keys, Keys):
            check_keys(self.keys)
        if self.novelty_threshold is not None:
            validation.real("novelty_threshold", self.novelty_threshold, low=0, high=1)
        validation.check_device(self.device)
        return rule

    def _replace_state(self, state: LearnedState, unlearned: bool) -> Self:
        self._state = state
        return self

    def _ready(self) -> LearnedState:
        """What was learned, if there is anything to predict from."""
        if not hasattr(self, "_state"):
            check_is_fitted(self, "_state")  # which says so
        state = self._state
        if not state.class_counts.any():
            raise NotFittedError("All that was learned was unlearned: learn something first.")
        return state

    def _known_or_given_keys(self) -> Keys:
        if hasattr(self, "_state"):
            return self._state.keys
        if not isinstance(self.keys, Keys):
            raise NotFittedError("There are no keys yet: pass keys, or learn something first.")
        return make_rule(self.rule).local_keys(self.keys.to(self.device))

    def _scored(self, X: Any) -> tuple[LearnedState, Batch, Floats]:
        """What was learned, X as a batch, and its scores (n, Y) in the order of `classes_`."""
        state = self._ready()
        batch = self._batch(X, state.rule.keys_)
        n, n_classes = batch.shape[0], len(state.labels.order)
        if n * n_classes > MANY_SCORES:
            validation.check_memory(f"scores ({n}, {n_classes})", 24 * n * n_classes, FEWER_INPUTS)
        scores: Floats = state.rule.scores(batch).double().cpu().numpy()
        return state, batch, scores[:, state.labels.order]

    def _sorted_scores(self, X: ArrayLike) -> Floats:
        return self._scored(X)[2]

    # ------------------------------------------------------------------------------------- files
    def _known_keys(self) -> list[Keys]:
        return list(self._state.key_versions)

    def _to_state(self, dtype: str | None = None) -> State:
        return self._state.to_state(dtype)

    def _saved_params(self) -> dict[str, Any]:
        params = super()._saved_params()
        if isinstance(self.rule, str):
            params["rule"] = {"name": self.rule, "params": None}
        return params

    @classmethod
    def _params_from(cls, saved: dict[str, Any]) -> dict[str, Any]:
        params = super()._params_from(saved)
        if isinstance(params.get("rule"), str):
            return params_from_flat(params)
        return params | {"rule": rule_from(params["rule"])}

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        self._state = LearnedState.from_state(state, fitted_rule(state, self.rule), keys)
        if self._state.keys.width != self.n_features_in_:
            raise state.damaged("n_features: expected the width of the keys")


def _learned(
    before: LearnedState, labels: LabelIndex, declared: frozenset[Any], batch: Any, y: Any
) -> LearnedState:
    """With rows of labels y (n,), all of them in `labels`."""
    class_index, n_classes = labels.indices(y), len(labels.order)
    class_counts = np.bincount(class_index, minlength=n_classes)
    if before.rule.splits_rows and process_group.world_size() > 1:
        class_counts = process_group.all_reduce(torch.from_numpy(class_counts)).numpy()
    class_counts += np.pad(before.class_counts, (0, n_classes - len(before.class_counts)))
    check_countable(class_counts)
    on_device = torch.from_numpy(class_index).to(before.rule.keys_.keys.device)
    return replace(
        before,
        labels=labels,
        class_counts=class_counts,
        declared=before.declared | declared,
        rule=before.rule.learn(batch, on_device, n_classes),
    )


def _distinct(labels: Any) -> frozenset[Any]:
    """Distinct labels as plain values."""
    return frozenset(LabelIndex.from_list(labels).to_list())
