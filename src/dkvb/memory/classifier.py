"""The kernel classifier as a scikit-learn classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from dkvb._support import arrow, validation
from dkvb._support.files import State
from dkvb._support.optional import require_torch
from dkvb.estimators.answers import Answers
from dkvb.estimators.base import Floats
from dkvb.estimators.changeable import ChangeableClassifier
from dkvb.estimators.labels import LabelIndex, check_labels
from dkvb.estimators.novelty import unknown_label
from dkvb.memory import serialisation
from dkvb.memory.cells import Cells
from dkvb.memory.coders import Codebooks, Coder, Signs
from dkvb.memory.estimator import KernelEstimator
from dkvb.memory.examples import checked_ids, object_array
from dkvb.memory.explain import KernelExplanation, explain
from dkvb.memory.export import ExportView
from dkvb.memory.label_sets import Given, LabelSetState, are_sets, checked_sets
from dkvb.memory.quality import Suspect
from dkvb.memory.state import KernelState, empty

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys

LabelledState: TypeAlias = KernelState | LabelSetState


def _keeps_examples(classifier: Any) -> bool:
    """Whether single examples can be told apart."""
    if classifier.keep != "examples":
        raise AttributeError(
            f'expected keep="examples", with which examples can be told apart; '
            f"got keep={classifier.keep!r}"
        )
    return True


class KernelClassifier(KernelEstimator[LabelledState], ChangeableClassifier[LabelledState]):
    """Kernel ridge regression over what was learned; the most accurate classifier here.

    `keep="examples"` keeps the embedding of every learned example, in float16: 2 bytes per
    dimension (the field calls this latent replay). `keep="sums"` keeps a count and a sum per key
    and class, a *cell*: bounded by keys × classes, whatever is learned. A cell of one row is that
    row, and often every second cell is (`single_row_share_`): sums bound memory and time, they do
    not anonymise. Where no row may be kept, use streaming LDA or RanPAC.

    What was learned is a multiset of examples. Any order, batching, split and merge give the same
    bits, and unlearning (`forget`) leaves what never having learned would have. Conditioning,
    kernel and ridge strength are chosen by leaving one example, or one cell, out: in `fit` and
    `tune`, and while there are up to 1,000 examples whenever their number has doubled. In between,
    one more example corrects the solution at once. After `tune`, predictions depend on what was
    learned alone. Scores are normalised per class (class-balanced).

    Labels may come in sets: y is a matrix (n, Y) of 1, 0 and NaN for what nobody said, or a list of
    labels for each row, where what is not listed is "no". Then `predict` gives such a matrix, or
    lists; each label has a probability of its own, and the threshold of the highest leave-one-out
    F1, whose mean over labels is `loo_score_`. Of a label that came later, earlier rows of a matrix
    say nothing, and earlier lists "no". `forget(label)` takes a label out of every set.

    Up to 12,000 points are solved for exactly; more examples as cells of as many keys, which are
    fitted to them.

    Needs: no task boundaries, no classes known in advance; order-invariant.
    Memory: 2·n·m bytes of examples, or 8·m per cell; and while it learns one by one up to 1 GB.

    Parameters
    ----------
    keep : "examples" or "sums"
        What is kept of learned rows.
    keys : Keys or None
        Frozen keys from `fit_keys`. With examples, their conditioning of embeddings is used. With
        sums, a cell is a key (with several codebooks, a tuple of keys) and a class. Without keys
        the conditioning is fitted to what was learned, and the key of a cell is the signs of random
        projections, which are fitted to nothing.
    novelty_threshold : float or None
        Inputs of higher `novelty` are answered "unknown", or −1 if labels are numbers.
    random_state : int, RandomState or None
        Not used: nothing is random. Present for API consistency.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["ant", "bee", "cat", "dog"], 20)
    >>> X = np.repeat(np.eye(4), 20, axis=0) + rng.normal(scale=0.1, size=(80, 4))
    >>> clf = KernelClassifier().fit(X, y)
    >>> clf.score(X, y), clf.loo_score_
    (1.0, 1.0)
    >>> clf.forget("cat").classes_
    array(['ant', 'bee', 'dog'], dtype='<U3')
    """

    _state: LabelledState
    learns_in_epochs = False

    def __init__(
        self,
        keep: str = "examples",
        *,
        keys: Keys | None = None,
        novelty_threshold: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.keep = keep
        self.keys = keys
        self.novelty_threshold = novelty_threshold
        self.random_state = random_state

    @classmethod
    def with_key_rows(cls, key_rows: Any, *, progress: bool = False, **settings: Any) -> Self:
        """A classifier whose keys are fitted to unlabelled rows of the same encoder.

        They are one codebook. Of examples only its conditioning is used, so that it is small; of
        sums it decides what is added up.
        """
        require_torch("keys fitted to rows")
        from dkvb.bottleneck import fit_keys

        classifier = cls(**settings)
        classifier._check_settings()
        key_rows = arrow.without_labels(key_rows)
        classifier.keys = fit_keys(
            key_rows,
            n_codebooks=1,
            n_pairs=16 if classifier.keep == "examples" else None,
            key_dim=96,
            method="lloyd",
            epochs=5,
            conditioning="auto",
            n_components=np.shape(key_rows)[1],
            progress=progress,
        )
        return classifier

    # ------------------------------------------------------------------ learning and predicting
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Discard what was learned, learn these examples, and choose all settings."""
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        state = self._with_examples(None, X, y, None, sample_weight, ids)
        state = state.tuned()
        validate_data(self, X, reset=True, skip_check_array=True)
        self._state = state
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Learn these examples, beside those learned before.

        Parameters
        ----------
        X : array (n, m), or table
            Embeddings. A table (pandas, polars, pyarrow, DuckDB, a Hugging Face dataset) has them
            in a column of lists.
        y : array (n,), matrix (n, Y), or lists of labels
            Labels: integers, strings or booleans; of a table also the name of a column, which is
            guessed unless it is given. For sets of labels, a matrix of 1 (yes), 0 (no) and NaN (not
            said), whose columns are named by a data frame, by `classes`, or as before; or a list or
            set for each row. Lists of lists are lists of labels, unless 0 or 1 stands twice in one.
        classes : array or None
            Labels that may come later, in any call; never needed. Where it is given, labels in y
            are among these or known from earlier calls.
        sample_weight : array (n,) or None
            Whole numbers: how often each example counts.
        ids : array (n,) or None
            Names (strings or integers) under which `explain`, `suspects` and `forget_samples` know
            the examples.
        """
        before = self._check_changeable("partial_fit") if hasattr(self, "_state") else None
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        state = self._with_examples(before, X, y, classes, sample_weight, ids)
        state = state.settled() if state.is_quick else state
        if before is None:
            validate_data(self, X, reset=True, skip_check_array=True)
        self._state = state
        return self

    def begin(self, n_features: int) -> Self:
        """Discard what was learned, and become a model of no class for embeddings (n, m)."""
        self._check_settings()
        width = validation.positive_int("n_features", n_features)
        if self.keys is not None and self.keys.width != width:
            raise ValueError(
                f"n_features: expected {self.keys.width}, the width of the keys; got {width}"
            )
        self._state, self.n_features_in_ = empty(width, self.keys, self._coder(width)), width
        return self

    def adopt(self, tuned: Self) -> bool:
        """Answer from now on as a copy does that was tuned beside, with all that was learned since;
        False where something was unlearned since, and the copy's solution is of no use."""
        state, other = self._check_changeable("adopt"), tuned._solved()
        if not isinstance(state, KernelState) or not isinstance(other, KernelState):
            return False
        adopted = state.adopting(other)
        if adopted is None:
            return False
        adopted = adopted.settled()
        if self._state is not state:  # somebody has learned meanwhile
            return False
        self._state = adopted
        return True

    def predict(self, X: ArrayLike) -> Any:
        """The label of the highest score (n,), or "unknown" (−1) above the novelty threshold.

        After sets of labels: a matrix (n, Y) of 0 and 1, or lists of labels, as they were learned.
        """
        state, x = self._solved_for(X)
        far = None if self.novelty_threshold is None else state.novelty(x)
        return self._named(state, state.scores(x), far)

    def ask(self, X: ArrayLike) -> Answers:
        """Labels, probabilities and novelty of X (n, m), from one kernel matrix."""
        solved, x = self._solved_for(X)
        state = self._one_label("ask", solved)
        scores, far = state.scores_and_novelty(x)
        probabilities = state.probabilities(scores)
        labels = self._named(state, scores, far)
        return Answers(labels, state.labels.classes_, probabilities, far)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores (n, Y) in the order of `classes_`; for two classes their log odds (n,).

        Of sets of labels: how far each label (n, Y) is above its threshold.
        """
        state, x = self._solved_for(X)
        return state.decisions(state.scores(x))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities (n, Y) in the order of `classes_`, calibrated on learned examples that were
        left out; in sets, of each label by itself."""
        state, x = self._solved_for(X)
        return state.probabilities(state.scores(x))

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Logarithms of `predict_proba` (n, Y)."""
        with np.errstate(divide="ignore"):
            logarithms: Floats = np.log(self.predict_proba(X))
        return logarithms

    def score(self, X: ArrayLike, y: Any, sample_weight: Any = None) -> float:
        """The share of inputs whose label, or whole set of labels, is the right one."""
        state = self._fitted()
        if not isinstance(state, LabelSetState) or not state.listed:
            return float(super().score(X, y, sample_weight))
        right = [set(own) == set(one) for own, one in zip(self.predict(X), y, strict=True)]
        return float(np.average(right, weights=sample_weight))

    # ------------------------------------------------------------------ changing what was learned
    def forget_samples(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Unlearn examples, given as embeddings with their labels, or by their ids.

        A class without examples is removed, unless it was declared. Examples that were not all
        learned raise an error, and nothing changes.
        """
        state = self._check_changeable("forget_samples")
        if ids is not None:
            if X is not None or y is not None:
                raise ValueError("ids: expected either ids alone, or X and y; got both")
            self._check_keeps_examples("ids", state)
            return self._replace_state(state.forget_ids(checked_ids(ids, None)), True)
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        rows = self._embeddings(X)
        if isinstance(state, LabelSetState):
            given = _checked_sets(state, y, len(rows), None)
            return self._replace_state(state.forget_samples(rows, given), True)
        labels = check_labels(y, len(rows), self)
        return self._replace_state(state.forget_samples(rows, labels), True)

    def relabel(
        self,
        X: ArrayLike | None = None,
        y_old: ArrayLike | None = None,
        y_new: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Give examples that were learned with labels y_old (n,), or the examples of some ids, the
        labels y_new (n,)."""
        return self._replace_state(self._relabelled(X, y_old, y_new, ids), True)

    # --------------------------------------------------------------------------- looking at it
    def explain(self, x: ArrayLike, n: int = 10) -> KernelExplanation:
        """The n learned examples that decided for one input (m,), their shares and ids."""
        validation.positive_int("n", n)
        state, row = self._solved_for(np.atleast_2d(np.asarray(x)))
        if len(row) != 1:
            raise ValueError(f"x: expected one input; got {len(row)}; explain them one by one")
        return explain(self._one_label("explain", state), row, n)

    @property
    def loo_score_(self) -> float:
        """Accuracy on the learned examples, each predicted by the others; see `loo_kind_`. Of sets
        of labels: F1, averaged over labels."""
        return self._solved().quality.accuracy

    @property
    def loo_kind_(self) -> str:
        """What `loo_score_` is: "leave-one-out"; "leave-one-cell-out" of sums, which flatters, as
        cells of one class lie where those of others do not; "held-out" where cells were solved for
        in place of examples; "leave-one-out, estimated" after `tune(exact=True)` of as many."""
        return self._solved().quality.kind

    @property
    def setting_(self) -> dict[str, Any]:
        """The conditioning, kernel and ridge strength that were chosen, and their score."""
        setting = super().setting_
        if isinstance(self._state, LabelSetState):
            setting["score"] = self.loo_score_
        return setting

    def class_accuracy(self) -> dict[Any, float]:
        """Leave-one-out accuracy of each class that has examples, by label."""
        confusion = self.confusion()
        total = confusion.sum(axis=1)
        labels = self.classes_.tolist()
        return {
            label: float(confusion[i, i] / total[i]) for i, label in enumerate(labels) if total[i]
        }

    def confusion(self) -> NDArray[np.int64]:
        """Learned examples by label and leave-one-out prediction (Y, Y), as `classes_`."""
        return self._one_label("confusion", self._solved()).quality.confusion()

    @available_if(_keeps_examples)  # type: ignore[untyped-decorator]
    def suspects(self, n: int | None = None) -> list[Suspect]:
        """Learned examples whose label the others contradict, at most n, those first to whose label
        the others give the lowest probability."""
        return self._one_label("suspects", self._solved()).suspects(n)

    @property
    def single_row_share_(self) -> float:
        """The share of cells that hold one row, and so are that row; 1 where examples are kept."""
        memory = self._fitted().memory
        return memory.single_row_share if isinstance(memory, Cells) else 1.0

    def _compared(self, X: ArrayLike) -> tuple[Floats, Floats, Any]:
        solved, x = self._solved_for(X)
        state = self._one_label("suggest", solved)
        assert state.solution is not None
        scores, novelty = state.scores_and_novelty(x)
        return state.probabilities(scores), novelty, state.solution.by(x)

    @available_if(_keeps_examples)  # type: ignore[untyped-decorator]
    def rows(self) -> tuple[list[Any], NDArray[Any]]:
        """The ids (n,) of the learned examples, None where there is none, and their labels (n,)."""
        state = self._one_label("rows", self._fitted())
        memory = state.memory.canonical()
        labels: NDArray[Any] = state.labels.classes_[memory.targets]
        ids = getattr(memory, "ids", None)
        return ([None] * len(labels) if ids is None else ids.tolist()), labels

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, in canonical order: equal sets of examples, equal arrays."""
        state = self._fitted()
        arrays = serialisation.memory_state(state.memory.canonical()).arrays
        return arrays if isinstance(state, KernelState) else arrays | {"sets": state.table}

    def export_view(self) -> ExportView:
        """What an exported file needs to answer."""
        return ExportView.of(self._one_label("export", self._solved()))

    # --------------------------------------------------------------------------------- journals
    def journal_record(self, X: ArrayLike, y: ArrayLike, ids: ArrayLike | None = None) -> State:
        """What `replay` needs to learn these examples, checked: embeddings, labels and ids."""
        known = self._one_label("learn", self._check_changeable("learn")).labels
        rows, labels = self._checked_known(X, y)
        known.after_call(None, labels)
        names = None if ids is None else checked_ids(ids, len(rows))
        return serialisation.record_state(rows, labels, known, names)

    def replay(self, record: State) -> int:
        """Learn the examples of a journal record, to be solved for on first use; their number."""
        state = self._one_label("learn", self._check_changeable("learn"))
        rows, labels, ids = serialisation.record_from(record, self.n_features_in_)
        index = state.labels.after_call(None, labels)
        self._check_unknown(index)
        array = None if ids is None else object_array(ids)
        self._state = state.learned(index, frozenset(), rows, labels, array)
        return len(rows)

    def relabel_record(
        self,
        X: ArrayLike | None = None,
        y_old: ArrayLike | None = None,
        y_new: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
    ) -> State:
        """What must be kept of `relabel`, checked, to do it again with `replay_relabel`."""
        self._relabelled(X, y_old, y_new, ids)
        if ids is not None:
            names = checked_ids(ids, None)
            X = np.zeros((len(names), self.n_features_in_), np.float32)  # its ids say which
            return State().with_part("new", self.journal_record(X, y_new, names))  # type: ignore[arg-type]
        record = State().with_part("old", self.journal_record(X, y_old))  # type: ignore[arg-type]
        return record.with_part("new", self.journal_record(X, y_new))  # type: ignore[arg-type]

    def replay_relabel(self, record: State) -> int:
        """Do what `relabel_record` described, to be solved for on first use; the number of rows."""
        state = self._one_label("relabel", self._check_changeable("relabel"))
        rows, new, ids = serialisation.record_from(record.part("new"), self.n_features_in_)
        if ids is not None:
            self._state = state.relabel_ids(ids, new)
        else:
            _, old, _ = serialisation.record_from(record.part("old"), self.n_features_in_)
            self._state = state.relabel(rows, old, new)
        return len(rows)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags

    # ----------------------------------------------------------------------------------- checks
    def _with_examples(
        self, before: LabelledState | None, X: Any, y: Any, classes: Any, weight: Any, ids: Any
    ) -> LabelledState:
        """The next state with these examples; every check comes before the first change."""
        self._check_settings()
        rows = self._embeddings(X, known=before is not None)
        names = None if ids is None else checked_ids(ids, len(rows))
        if before is None:
            before = empty(rows.shape[1], self.keys, self._coder(rows.shape[1]))
        if not before.n_rows:
            before = before.emptied(LabelSetState) if are_sets(y) else before.emptied(KernelState)
        if names is not None:
            self._check_keeps_examples("ids", before)
        chosen = np.arange(len(rows)) if weight is None else validation.repeated(weight, len(rows))
        array = None if names is None else object_array(names)[chosen]
        if isinstance(before, LabelSetState):
            return self._with_sets(before, rows, y, classes, chosen, array)
        labels = self._labels(y, len(rows))[chosen]
        index = before.labels.after_call(classes, labels)
        if self.novelty_threshold is not None:
            unknown_label(index)
        return before.learned(index, _declared(classes), rows[chosen], labels, array)

    def _with_sets(
        self, before: LabelSetState, rows: Any, y: Any, classes: Any, chosen: Any, ids: Any
    ) -> LabelSetState:
        """The next state with examples of sets of labels."""
        if self.novelty_threshold is not None:
            raise ValueError(
                "novelty_threshold: expected None beside sets of labels, in which no label means "
                f"unknown; got {self.novelty_threshold}; compare novelty(X) with it yourself"
            )
        columns = None if classes is None else list(classes)
        given = _checked_sets(before, y, len(rows), columns)
        before.labels.after_call(classes, given.labels)
        given = given._replace(rows=given.rows[chosen])
        return before.learned(rows[chosen], given, _declared(classes), ids)

    def _relabelled(self, X: Any, y_old: Any, y_new: Any, ids: Any) -> KernelState:
        state = self._one_label("relabel", self._check_changeable("relabel"))
        if ids is not None:
            if X is not None or y_old is not None:
                raise ValueError("ids: expected either ids and y_new, or X, y_old and y_new")
            self._check_keeps_examples("ids", state)
            names = checked_ids(ids, None)
            new = check_labels(y_new, len(names), self)
            relabelled = state.relabel_ids(names, new)
        else:
            rows, old = self._checked_known(X, y_old)
            relabelled = state.relabel(rows, old, check_labels(y_new, len(rows), self))
        self._check_unknown(relabelled.labels)
        return relabelled

    def _checked_known(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        if not isinstance(X, np.ndarray):
            X, y = arrow.with_labels(X, y)
        rows = self._embeddings(X)
        return rows, self._labels(y, len(rows))

    def _labels(self, y: Any, n: int) -> NDArray[Any]:
        """One label for each of n rows."""
        if are_sets(y):
            raise ValueError(
                "y: expected one label for each example, as before; got sets of labels; learn sets "
                "from the start, or in another model"
            )
        return check_labels(y, n, self)

    def _coder(self, width: int) -> Coder | None:
        """The keys of cells for embeddings of a width; None where examples are kept."""
        if self.keep == "examples":
            return None
        return Signs(width) if self.keys is None else Codebooks(self.keys)

    def _check_keeps_examples(self, name: str, state: LabelledState) -> None:
        if isinstance(state.memory, Cells):
            raise ValueError(
                f'{name}: expected a classifier that keeps examples; got keep="sums", in which no '
                'example can be told from others; use keep="examples"'
            )

    def _check_settings(self) -> None:
        validation.one_of("keep", self.keep, ("examples", "sums"))
        self._check_keys()
        if self.novelty_threshold is not None:
            validation.real("novelty_threshold", self.novelty_threshold, low=0, high=1)

    def _named(self, state: LabelledState, scores: Floats, far: Floats | None) -> Any:
        """What scores (n, Y) say, or "unknown" above the novelty threshold."""
        labels = state.named(scores)
        if self.novelty_threshold is None or far is None:
            return labels
        return np.where(far > self.novelty_threshold, unknown_label(state.labels), labels)

    def _one_label(self, operation: str, state: LabelledState) -> KernelState:
        """The state, if it has learned one label for each example."""
        if not isinstance(state, KernelState):
            raise ValueError(
                f"{operation}: expected a classifier that has learned one label for each example; "
                "got sets of labels, for which there are predict, predict_proba and novelty"
            )
        return state

    def _sorted_scores(self, X: ArrayLike) -> Floats:
        state, x = self._solved_for(X)
        return state.scores(x)

    # ------------------------------------------------------------------------------------ files
    def _to_state(self, dtype: str | None = None) -> State:
        return serialisation.labelled_state(self._state)

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        width = self.n_features_in_
        self._state = serialisation.labelled_state_from(state, keys, width, self._coder(width))


def _declared(classes: Any) -> frozenset[Any]:
    """Labels that stay without examples."""
    return frozenset() if classes is None else frozenset(LabelIndex.from_list(classes).to_list())


def _checked_sets(state: LabelSetState, y: Any, n: int, columns: list[Any] | None) -> Given:
    """Sets of labels in the form in which a state has learned others."""
    if not are_sets(y):
        raise ValueError(
            "y: expected sets of labels, as before: lists, or a matrix of 0, 1 and NaN; got one "
            "label for each row; put each in a list, or learn them in another model"
        )
    given = checked_sets(y, n, columns, state.labels.classes_.tolist())
    state.check_alike(given.listed, "y")
    return given
