"""The kernel classifier as a scikit-learn classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from dkvb._support import arrow, validation
from dkvb._support.files import State
from dkvb.estimators.answers import Answers
from dkvb.estimators.base import Floats, softmax
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
from dkvb.memory.quality import Suspect
from dkvb.memory.state import KernelState, empty

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys


class KernelClassifier(KernelEstimator[KernelState], ChangeableClassifier[KernelState]):
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

    _state: KernelState
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
        """A classifier whose conditioning is fitted to unlabelled rows of the same encoder.

        The keys hold the conditioning; one codebook is the least that they can have.
        """
        from dkvb.bottleneck import fit_keys  # fitting keys needs torch

        classifier = cls(**settings)
        classifier._check_settings()
        key_rows = arrow.without_labels(key_rows)
        classifier.keys = fit_keys(
            key_rows,
            n_codebooks=1,
            n_pairs=16,
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
        y : array (n,)
            Labels: integers, strings or booleans; of a table also the name of a column, which is
            guessed unless it is given.
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

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest score (n,), or "unknown" (−1) above the novelty threshold."""
        state, x = self._solved_for(X)
        far = None if self.novelty_threshold is None else state.novelty(x)
        return self._named(state, state.scores(x), far)

    def ask(self, X: ArrayLike) -> Answers:
        """Labels, probabilities and novelty of X (n, m), from one kernel matrix."""
        state, x = self._solved_for(X)
        scores, far = state.scores_and_novelty(x)
        probabilities = softmax(state.quality.calibration.logits(scores))
        labels = self._named(state, scores, far)
        return Answers(labels, state.labels.classes_, probabilities, far)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores (n, Y) in the order of `classes_`; for two classes their log odds (n,)."""
        state, x = self._solved_for(X)
        scores = state.scores(x)
        if scores.shape[1] == 2:
            logits = state.quality.calibration.logits(scores)
            scores = logits[:, 1] - logits[:, 0]
        return scores

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities (n, Y) in the order of `classes_`, calibrated on learned examples that were
        left out."""
        state, x = self._solved_for(X)
        return softmax(state.quality.calibration.logits(state.scores(x)))

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Logarithms of `predict_proba` (n, Y)."""
        with np.errstate(divide="ignore"):
            logarithms: Floats = np.log(self.predict_proba(X))
        return logarithms

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
        rows, labels = self._checked_known(X, y)
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
        return explain(state, row, n)

    @property
    def loo_score_(self) -> float:
        """Accuracy on the learned examples, each predicted by the others; see `loo_kind_`."""
        return self._solved().quality.accuracy

    @property
    def loo_kind_(self) -> str:
        """What `loo_score_` is: "leave-one-out", "leave-one-out, estimated" or "held-out"."""
        return self._solved().quality.kind

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
        return self._solved().quality.confusion()

    def suspects(self, n: int | None = None) -> list[Suspect]:
        """Learned examples whose label the others contradict, at most n, those first to whose label
        the others give the lowest probability."""
        state = self._solved()
        self._check_keeps_examples("suspects", state)
        return state.suspects(n)

    @property
    def single_row_share_(self) -> float:
        """The share of cells that hold one row, and so are that row; 1 where examples are kept."""
        memory = self._fitted().memory
        return memory.single_row_share if isinstance(memory, Cells) else 1.0

    def _compared(self, X: ArrayLike) -> tuple[Floats, Floats, Any]:
        state, x = self._solved_for(X)
        assert state.solution is not None
        scores, novelty = state.scores_and_novelty(x)
        probabilities = softmax(state.quality.calibration.logits(scores))
        return probabilities, novelty, state.solution.by(x)

    def rows(self) -> tuple[list[Any], NDArray[Any]]:
        """The ids (n,) of the learned examples, None where there is none, and their labels (n,)."""
        state = self._fitted()
        self._check_keeps_examples("rows", state)
        memory = state.memory.canonical()
        labels: NDArray[Any] = state.labels.classes_[memory.targets]
        ids = getattr(memory, "ids", None)
        return ([None] * len(labels) if ids is None else ids.tolist()), labels

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, in canonical order: equal sets of examples, equal arrays."""
        return serialisation.memory_state(self._fitted().memory.canonical()).arrays

    def export_view(self) -> ExportView:
        """What an exported file needs to answer."""
        return ExportView.of(self._solved())

    # --------------------------------------------------------------------------------- journals
    def journal_record(self, X: ArrayLike, y: ArrayLike, ids: ArrayLike | None = None) -> State:
        """What `replay` needs to learn these examples, checked: embeddings, labels and ids."""
        self._check_changeable("learn")
        rows, labels = self._checked_known(X, y)
        self._state.labels.after_call(None, labels)
        names = None if ids is None else checked_ids(ids, len(rows))
        known = self._state.labels
        return serialisation.record_state(rows, labels, known, names)

    def replay(self, record: State) -> int:
        """Learn the examples of a journal record, to be solved for on first use; their number."""
        state = self._check_changeable("learn")
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
        state = self._check_changeable("relabel")
        rows, new, ids = serialisation.record_from(record.part("new"), self.n_features_in_)
        if ids is not None:
            self._state = state.relabel_ids(ids, new)
        else:
            _, old, _ = serialisation.record_from(record.part("old"), self.n_features_in_)
            self._state = state.relabel(rows, old, new)
        return len(rows)

    # ----------------------------------------------------------------------------------- checks
    def _with_examples(
        self, before: KernelState | None, X: Any, y: Any, classes: Any, weight: Any, ids: Any
    ) -> KernelState:
        """The next state with these examples; every check comes before the first change."""
        self._check_settings()
        rows = self._embeddings(X, known=before is not None)
        labels = check_labels(y, len(rows), self)
        names = None if ids is None else checked_ids(ids, len(rows))
        if weight is not None:
            chosen = validation.repeated(weight, len(rows))
            rows, labels = rows[chosen], labels[chosen]
            names = None if names is None else [names[i] for i in chosen.tolist()]
        index = (LabelIndex() if before is None else before.labels).after_call(classes, labels)
        if self.novelty_threshold is not None:
            unknown_label(index)
        declared: frozenset[Any] = frozenset()
        if classes is not None:
            declared = frozenset(LabelIndex.from_list(classes).to_list())
        array = None if names is None else object_array(names)
        if before is None:
            before = empty(rows.shape[1], self.keys, self._coder(rows.shape[1]))
        if array is not None:
            self._check_keeps_examples("ids", before)
        return before.learned(index, declared, rows, labels, array)

    def _relabelled(self, X: Any, y_old: Any, y_new: Any, ids: Any) -> KernelState:
        state = self._check_changeable("relabel")
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
        return rows, check_labels(y, len(rows), self)

    def _coder(self, width: int) -> Coder | None:
        """The keys of cells for embeddings of a width; None where examples are kept."""
        if self.keep == "examples":
            return None
        return Signs(width) if self.keys is None else Codebooks(self.keys)

    def _check_keeps_examples(self, name: str, state: KernelState) -> None:
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

    def _named(self, state: KernelState, scores: Floats, far: Floats | None) -> NDArray[Any]:
        """The label of the highest of scores (n, Y), or "unknown" above the novelty threshold."""
        labels: NDArray[Any] = state.labels.classes_[scores.argmax(axis=1)]
        if self.novelty_threshold is None or far is None:
            return labels
        return np.where(far > self.novelty_threshold, unknown_label(state.labels), labels)

    def _sorted_scores(self, X: ArrayLike) -> Floats:
        state, x = self._solved_for(X)
        return state.scores(x)

    # ------------------------------------------------------------------------------------ files
    def _to_state(self, dtype: str | None = None) -> State:
        return serialisation.kernel_state(self._state)

    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        found = serialisation.kernel_state_from(
            state, keys, self.n_features_in_, self._coder(self.n_features_in_)
        )
        self._state = found
