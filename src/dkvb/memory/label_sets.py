"""Sets of labels: what was said of each label, as rows of 1 (yes), 0 (no) and −1 (not said)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dkvb.estimators.labels import MOST_CLASSES, TOO_MANY_CLASSES, LabelIndex
from dkvb.memory.cells import Cells
from dkvb.memory.outputs import LabelSets
from dkvb.memory.set_quality import SetQuality
from dkvb.memory.tabled import Tabled, distinct_rows

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Signs = NDArray[np.int8]
Places = NDArray[np.int64]

NOT_SAID = -1
MOST_SETS = 3000  # that have cells of their own where there are too many examples


class Given(NamedTuple):
    """Sets of labels as somebody gave them."""

    rows: Signs  # (n, l)
    labels: list[Any]  # (l,) of the columns
    listed: bool  # as lists, in which what is not listed is "no"


def are_sets(y: Any) -> bool:
    """Whether targets are sets of labels: a matrix of several columns, or lists or sets."""
    if getattr(y, "ndim", 1) != 1:
        return bool(y.ndim == 2 and y.shape[1] > 1)
    if isinstance(y, str) or not isinstance(y, Iterable):
        return False
    first = next(iter(y), None)
    return isinstance(first, list | tuple | set | frozenset | np.ndarray)


def checked_sets(y: Any, n: int, columns: list[Any] | None, known: list[Any]) -> Given:
    """Sets of labels for n rows, or an error that says what is wrong with them.

    The columns of a matrix have names in a data frame; else they are `columns`, if these are given,
    the `known` labels, if there are any, or 0, 1, 2, …
    """
    if getattr(y, "ndim", 1) == 2:
        return _of_matrix(y, n, columns, known)
    lists = [one.tolist() if isinstance(one, np.ndarray) else one for one in y]
    if _is_matrix(lists):
        return _of_matrix(np.array(lists), n, columns, known)
    return _of_lists(lists, n)


def _is_matrix(lists: list[Any]) -> bool:
    """Whether lists are rows of a matrix: all of one length, of 0 and 1, and of one of them twice,
    as always in three columns."""
    if len({len(one) if isinstance(one, list | tuple) else 0 for one in lists}) != 1:
        return False
    if not all(type(value) is int and value in (0, 1) for one in lists for value in one):
        return False
    return any(len(set(one)) < len(one) for one in lists)


def _of_matrix(y: Any, n: int, columns: list[Any] | None, known: list[Any]) -> Given:
    names = getattr(y, "columns", columns)
    values = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    if len(values) != n:
        raise ValueError(f"y: expected {n} rows, one for each row of X; got {len(values)}")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.full(values.shape, np.inf)
    rows = np.where(np.isnan(numbers), NOT_SAID, numbers)
    if values.dtype.kind not in "biufO" or not np.isin(rows[~np.isnan(numbers)], (0, 1)).all():
        raise ValueError(
            "y: expected 1 (yes), 0 (no) or NaN (not said) in a matrix of labels; got others; give "
            "one label for each row as an array (n,), or sets of labels as lists"
        )
    labels = list(names) if names is not None else known or list(range(values.shape[1]))
    if len(labels) != values.shape[1] or len(set(labels)) < len(labels):
        raise ValueError(
            f"y: expected a matrix of {len(labels)} columns, one for each label; got "
            f"{values.shape[1]}; name the columns in a data frame, or with classes in partial_fit"
        )
    return Given(rows.astype(np.int8), labels, listed=False)


def _of_lists(y: list[Any], n: int) -> Given:
    if len(y) != n:
        raise ValueError(f"y: expected {n} lists of labels, one for each row of X; got {len(y)}")
    alien = next((one for one in y if isinstance(one, str) or not isinstance(one, Iterable)), None)
    if alien is not None:
        raise TypeError(
            f"y: expected a list or set of labels for each row; got {alien!r:.40}; "
            "put a single label in a list"
        )
    lists = [
        [label.item() if isinstance(label, np.generic) else label for label in one] for one in y
    ]
    index = LabelIndex()
    index.add([label for one in lists for label in one], "y")
    if any(len(set(one)) < len(one) for one in lists):
        raise ValueError(
            "y: expected each label at most once in a list; got one twice; list it once, or give a "
            "matrix of 0, 1 and NaN as an array"
        )
    place = {label: column for column, label in enumerate(index.plain())}
    rows = np.zeros((n, len(index)), np.int8)
    for row, one in zip(rows, lists, strict=True):
        row[[place[label] for label in one]] = 1
    return Given(rows, index.to_list(), listed=True)


def _no_sets() -> Signs:
    return np.zeros((0, 0), np.int8)


@dataclass(frozen=True, eq=False)
class LabelSetState(Tabled):
    """What was learned with sets of labels: columns are `labels.classes_`."""

    table: Signs = field(default_factory=_no_sets)
    labels: LabelIndex = field(default_factory=LabelIndex)
    declared: frozenset[Any] = frozenset()  # labels that stay though no example has them
    listed: bool = True  # whether what nobody says of a label is "no"

    # ---------------------------------------------------------------------------------- learning
    def learned(self, X: F32, given: Given, declared: frozenset[Any], ids: Any = None) -> Self:
        """With examples X (n, m) of sets of labels."""
        state = self if self.n_rows else replace(self, listed=given.listed)
        labels = state.labels.after_call(None, list(given.labels), sorted(declared))
        if len(labels) > MOST_CLASSES:
            raise ValueError(TOO_MANY_CLASSES.format(MOST_CLASSES, len(labels)))
        state = replace(state._with_labels(labels), declared=state.declared | declared)
        return state.learned_rows(X, state._rows_of(given), ids)

    def forget_samples(self, X: F32, given: Given) -> Self:
        """Without examples X (n, m) that were learned with sets of labels."""
        self.labels.indices(given.labels)
        return self.forgotten_rows(X, self._rows_of(given))._without_empty()

    def forget_ids(self, ids: list[Any]) -> Self:
        """Without the examples that have these ids."""
        assert not isinstance(self.memory, Cells)
        return self.forgotten(self.memory.of_ids(ids))._without_empty()

    def check_alike(self, listed: bool, name: str) -> None:
        """Raise where sets of labels come in another form than before."""
        if self.n_rows and listed != self.listed:
            forms = ("a matrix, in which NaN is not said", "lists, in which the rest is no")
            raise ValueError(
                f"{name}: expected sets of labels as before, as {forms[self.listed]}; got "
                f"{forms[listed]}; convert them"
            )

    def merge(self, other: Self) -> Self:
        self.check_mergeable(other)
        if other.n_rows:
            self.check_alike(other.listed, "other")
        labels = self.labels.copy()
        labels.add(other.labels.classes_, "other")
        mine = self if self.n_rows else replace(self, listed=other.listed)
        joined = mine._with_labels(labels).joined(other._with_labels(labels))
        return replace(joined, declared=self.declared | other.declared)

    def forget(self, label: Any) -> Self:
        """Without a label; examples that had no other stay, with none."""
        self.labels.indices([label], "label")
        has = self.table[self.memory.targets, self.labels.classes_.tolist().index(label)] == 1
        n = int(self.memory.counts[has].sum())
        return self._recorded("forget", n)._without_labels([label])

    def rename(self, label: Any, new_label: Any) -> Self:
        """With another name for a label."""
        labels = self.labels.renamed(label, new_label)
        names = [new_label if one == label else one for one in self.labels.classes_.tolist()]
        order = np.argsort(np.array(names), kind="stable")
        declared = frozenset(new_label if one == label else one for one in self.declared)
        return replace(self._with_columns(order, labels), declared=declared)

    def merge_classes(self, given: list[Any], into: Any) -> Self:
        """With one label, of all examples that had one of several, in place of these."""
        state = self._with_labels(self.labels.after_call(None, [into], name="into"))
        classes = state.labels.classes_.tolist()
        columns = state.table[:, [one in given for one in classes]]
        said = np.where((columns == 1).any(axis=1), 1, columns.min(axis=1, initial=1))
        table = state.table.copy()
        table[:, classes.index(into)] = said
        declared = frozenset(into if one in given else one for one in self.declared)
        merged = replace(state, table=table, declared=declared, solution=None)
        return merged._without_labels([one for one in given if one != into])

    # ----------------------------------------------------------------------------------- columns
    def _rows_of(self, given: Given) -> Signs:
        """Sets of labels as rows of the table (n, L)."""
        rows = np.full((len(given.rows), len(self.labels)), self._unsaid, np.int8)
        place = {label: i for i, label in enumerate(self.labels.classes_.tolist())}
        rows[:, [place[label] for label in given.labels]] = given.rows
        return rows

    @property
    def _unsaid(self) -> int:
        """What a row says of labels that nobody mentioned."""
        return 0 if self.listed else NOT_SAID

    def _with_labels(self, labels: LabelIndex) -> Self:
        """With more labels, of which earlier examples say nothing, or no."""
        before = {label: i for i, label in enumerate(self.labels.classes_.tolist())}
        which = np.array([before.get(one, -1) for one in labels.classes_.tolist()], np.int64)
        return self._with_columns(which, labels)

    def _without_labels(self, gone: list[Any]) -> Self:
        if not gone:
            return self
        labels = self.labels.copy()
        for label in gone:
            labels.remove(label)
        left = [i for i, one in enumerate(self.labels.classes_.tolist()) if one not in gone]
        state = self._with_columns(np.array(left, np.int64), labels)
        return replace(state, declared=self.declared - frozenset(gone))

    def _without_empty(self) -> Self:
        """Without labels that would not be known, had the examples that are left been all."""
        told = (self.table == 1) if self.listed else (self.table != NOT_SAID)
        pairs = zip(self.labels.classes_.tolist(), told.any(axis=0).tolist(), strict=True)
        return self._without_labels(
            [one for one, told in pairs if not told and one not in self.declared]
        )

    def _with_columns(self, which: Places, labels: LabelIndex) -> Self:
        """With the columns `which` (L,), −1 for a new one."""
        new = np.full((len(self.table), 1), self._unsaid, np.int8)
        wide = np.concatenate([self.table, new], axis=1)[:, which]
        table, place = distinct_rows(wide)
        solution = self.solution
        if solution is not None:
            solution = solution.with_value_columns(which)
        state = replace(self, labels=labels, solution=solution)
        if isinstance(state.memory, Cells) and len(table) < len(wide):  # cells become one
            memory = state.memory.regrouped(place[state.memory.targets])
            return replace(state, table=table, memory=memory, solution=None, cells=None, n_cells=0)
        return state.with_table(table, place)

    # ---------------------------------------------------------------------------------- solution
    @property
    def rows_of_table(self) -> F64:
        return np.where(self.table == NOT_SAID, np.nan, self.table)

    @property
    def needs_cells(self) -> bool:
        # Few sets are like classes, of each of which there are cells of its own.
        return len(self.table) > MOST_SETS and super().needs_cells

    def solved_as(self, rows: F64) -> LabelSets:
        return LabelSets(rows)

    @cached_property
    def quality(self) -> SetQuality:
        """What the solution predicts for its own examples."""
        return SetQuality.of(self)

    def sorted_counts(self) -> list[int]:
        """Examples of each label, in the order of sorted labels."""
        rows = np.bincount(self.memory.targets, self.memory.counts, minlength=len(self.table))
        counts: list[int] = (rows @ (self.table == 1)).astype(int).tolist()
        return counts

    # -------------------------------------------------------------------------------- predicting
    def scores(self, x: F32) -> F64:
        """Scores (n, L): 1 is yes, 0 is no."""
        assert self.solution is not None
        return self.solution.predict(x)

    def scores_and_novelty(self, x: F32) -> tuple[F64, F64]:
        """`scores` (n, L) and `novelty` (n,) at once."""
        assert self.solution is not None
        scores, nearest = self.solution.predict_and_nearest(x)
        return scores, self._novelty(nearest)

    def named(self, scores: F64) -> Any:
        """What scores (n, L) say: a matrix (n, L) of 0 and 1, or lists of labels."""
        yes = scores > self.quality.thresholds
        if not self.listed:
            return yes.astype(np.int64)
        classes = self.labels.classes_
        return [classes[row].tolist() for row in yes]

    def probabilities(self, scores: F64) -> F64:
        """Of each label by itself (n, L)."""
        return self.quality.probabilities(scores)

    def decisions(self, scores: F64) -> F64:
        """Scores (n, L) above the threshold of each label."""
        return scores - self.quality.thresholds
