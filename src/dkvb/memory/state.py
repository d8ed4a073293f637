"""All that a kernel classifier has learned, as one value: every operation returns the next.

A state is immutable. An error changes nothing, and threads that predict while another thread learns
use either the old state or the new one.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkvb._support.validation import check_memory
from dkvb.estimators.base import FEWER_INPUTS, MANY_SCORES, softmax
from dkvb.estimators.changeable import AuditRecord
from dkvb.estimators.labels import MOST_CLASSES, TOO_MANY_CLASSES, LabelIndex
from dkvb.memory.calibration import Calibration
from dkvb.memory.cells import Cells
from dkvb.memory.choose import Choice
from dkvb.memory.coders import Coder
from dkvb.memory.conditioning import Conditioning, conditionings_of_keys, fit_conditionings
from dkvb.memory.examples import Examples, kept
from dkvb.memory.inverse import NotPositiveDefinite
from dkvb.memory.outputs import Classes, Outputs, class_factors
from dkvb.memory.points import Memory
from dkvb.memory.quality import Quality, Suspect
from dkvb.memory.solution import Solution
from dkvb.memory.solve import MOST_POINTS, chosen, for_every_point, solve, solve_exactly
from dkvb.memory.update import StillThere, ready, settled

log = logging.getLogger(__name__)

F64 = NDArray[np.float64]
Places = NDArray[np.int64]

L = TypeVar("L", bound="Learned")

CHOSEN_AT_ONCE = 1000  # rows up to which settings are chosen again while somebody waits
FOLDED_AT_ONCE = 64  # changed points that are folded in, however few others there are
FOLDED_SHARE = 1 / 8  # of the points; where more changed, solving anew takes no longer


FORGOTTEN: dict[str, Any] = {"earlier_calibration": None, "earlier_distances": None}


@dataclass(frozen=True, eq=False)
class Learned(ABC):
    """Examples or cells, and the solution for them once there is one; a subclass says what their
    targets are."""

    memory: Examples | Cells
    keys: Any = None  # Keys, whose conditioning is used; None: fitted to what was learned
    audit: tuple[AuditRecord, ...] = ()
    solution: Solution | None = None  # of the memory, but for what it says is pending
    inference_only: bool = False
    earlier_calibration: Calibration | None = None  # of the solution before corrections
    earlier_distances: F64 | None = None  # `reference_distances` before corrections

    @property
    @abstractmethod
    def outputs(self) -> Outputs:
        """What values are columns of."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """With all examples of another state of the same encoder and keys."""

    @property
    def is_solved_exactly(self) -> bool:
        """Whether every entry can be solved for where there are many."""
        return False

    @property
    def entries(self) -> Memory:
        """The memory with the targets that it is solved for."""
        return self.memory

    def emptied(self, kind: type[L]) -> L:
        """The same where it is of a kind; else one of this kind that has learned nothing."""
        if isinstance(self, kind):
            return self
        nothing = self.memory.kept(np.zeros(len(self.memory), bool))
        return kind(nothing, self.keys, self.audit)

    def prepared(self) -> Self:
        """What is solved for from scratch."""
        return self

    @property
    def n_rows(self) -> int:
        """Examples that were learned."""
        return self.memory.n_rows

    def novelty(self, x: NDArray[np.float32]) -> F64:
        """The share (n,) of examples whose nearest other example is nearer than theirs."""
        assert self.solution is not None
        return self._novelty(self.solution.nearest_distances(x))

    def _novelty(self, nearest: F64) -> F64:
        reference = self.reference_distances
        if not len(reference):  # one example: there is nothing to compare with
            alone: F64 = 1 - np.exp(-nearest)
            return alone
        share: F64 = np.searchsorted(reference, nearest) / len(reference)
        return share

    @cached_property
    def reference_distances(self) -> F64:
        """Squared distances between what was learned and the nearest of the rest, sorted; with many
        examples those of the last solution."""
        if self.earlier_distances is not None and self.n_rows > CHOSEN_AT_ONCE:
            return self.earlier_distances
        assert self.solution is not None
        return self.solution.reference_distances()

    # ---------------------------------------------------------------------------------- changing
    @property
    def _fingerprint(self) -> str | None:
        if isinstance(self.memory, Cells):
            return self.memory.coder.fingerprint
        fingerprint: str | None = None if self.keys is None else self.keys.fingerprint
        return fingerprint

    def check_mergeable(self, other: Self) -> None:
        """Raise unless another state is of the same memory, encoder and keys."""
        if type(self) is not type(other):
            raise ValueError(
                "other: expected targets of the same kind; got one model with a label for each "
                "example and one with sets of labels; learn both with sets"
            )
        if type(self.memory) is not type(other.memory):
            raise ValueError(
                "other: expected the same kind of memory; got one that keeps examples and one that "
                "keeps sums; learn with one value of keep"
            )
        widths = [state.memory.width for state in (self, other)]
        if widths[0] != widths[1]:
            raise ValueError(
                f"other: expected embeddings of width {widths[0]}; got {widths[1]}; "
                "merge models of one encoder"
            )
        if self._fingerprint != other._fingerprint:
            raise ValueError("other: expected the same keys; got others; fit keys once for both")

    @property
    def _carried(self) -> dict[str, Any]:
        """What the next state may use of this one's; None of what nobody has asked for yet."""
        known = vars(self)
        return {
            "earlier_calibration": known.get("calibration", self.earlier_calibration),
            "earlier_distances": known.get("reference_distances", self.earlier_distances),
        }

    def _plus(self, more: Examples | Cells) -> Self:
        solution, carried = self.solution, self._carried
        if isinstance(self.memory, Cells):
            assert isinstance(more, Cells)
            cells, touched, n_new = self.memory.plus(more)
            if solution is not None:
                solution = solution.touched(touched).appended(n_new)
            return replace(self, memory=cells, solution=solution, **carried)
        assert isinstance(more, Examples)
        if solution is not None:
            solution = solution.appended(len(more))
        memory = self.memory.appended(more)
        return replace(self, memory=memory, solution=solution, **carried)

    def _positions(self, X: NDArray[np.float32], targets: Places, names: str) -> Places:
        assert isinstance(self.memory, Examples)
        places = self.memory.positions(kept(X)[2], targets)
        if (places < 0).any():
            raise ValueError(
                f"{names}: expected at most the examples that were learned with these targets; "
                f"got {int((places < 0).sum())} others; nothing was changed"
            )
        return places

    def _minus(self, less: Cells, names: str) -> Self:
        assert isinstance(self.memory, Cells)
        cells, touched = self.memory.minus(less, names)
        solution = None if self.solution is None else self.solution.touched(touched)
        state = replace(self, memory=cells, solution=solution, earlier_distances=None)
        left = cells.counts > 0
        return state if left.all() else state._kept(left)

    def _only(self, mask: NDArray[np.bool_], operation: str, n: int) -> Self:
        return self._kept(mask)._recorded(operation, n)

    def _kept(self, mask: NDArray[np.bool_]) -> Self:
        solution = None if self.solution is None else self.solution.kept(mask)
        memory = self.memory.kept(mask)
        return replace(self, memory=memory, solution=solution, earlier_distances=None)

    def _recorded(self, operation: str, n: int) -> Self:
        return replace(self, audit=(*self.audit, AuditRecord(operation, n, n)))

    # ---------------------------------------------------------------------------------- solution
    @property
    def is_settled(self) -> bool:
        """Whether all that was learned is in the solution."""
        return self.solution is not None and not self.solution.pending

    @property
    def is_quick(self) -> bool:
        """Whether settling takes so little that nobody notices."""
        if self.n_rows <= CHOSEN_AT_ONCE:
            return self.n_rows > 0
        return self.solution is not None and self.solution.pending <= FOLDED_AT_ONCE

    def settled(self) -> Self:
        """With all that was learned in the solution: folded in, solved anew with the same setting,
        or, where the examples have doubled since that was chosen, with a new choice."""
        s = self.solution
        if s is None:
            return self.tuned()
        if not s.pending:
            return self
        much = self._is_much(s)
        if self.is_due and (much or self.n_rows <= CHOSEN_AT_ONCE):
            return self.tuned()
        if not much:
            try:
                return replace(self, solution=settled(s, self.entries, self.outputs))
            except (NotPositiveDefinite, StillThere):
                log.info("no update leaves what it should; solving anew")
        state = self.prepared()
        again = solve(state.entries, state.outputs, s.setting, s.chosen_for, s.by, s.gamma)
        return replace(state, solution=again, **FORGOTTEN)

    @property
    def is_due(self) -> bool:
        """Whether so much was learned since the last choice of settings that another would pay."""
        s = self.solution
        return s is None or self.n_rows >= 2 * s.chosen_for

    def _is_much(self, s: Solution) -> bool:
        """Whether more is pending than is folded in sooner than solved for."""
        return s.pending > max(FOLDED_AT_ONCE, FOLDED_SHARE * len(s))

    def tuned(self, exact: bool = False, progress: bool = False) -> Self:
        """With a new choice of all settings, and its solution: a function of what was learned.

        `exact` solves for every example or cell, however many.
        """
        if exact and not self.is_solved_exactly:
            raise ValueError(
                "exact: expected a model with one label for each example; got one of numbers or of "
                "sets of labels, of which at most 12,000 points are solved for; use tune()"
            )
        state, found = self.prepared(), self.conditionings()
        choice, by = state.chosen(found)
        if exact and choice.solved is None and len(self.memory) > MOST_POINTS:
            choice = for_every_point(choice, found, state.entries)
            by = found[choice.setting.conditioning]
        setting, gamma, known = choice
        solution = solve(state.entries, state.outputs, setting, self.n_rows, by, gamma, known)
        if exact and solution.is_compressed:
            solution = solve_exactly(solution, state.entries, state.outputs, progress)
        return replace(state, solution=solution, **FORGOTTEN)

    def chosen(self, found: dict[str, Conditioning]) -> tuple[Choice, Conditioning]:
        """The best setting, and its conditioning among those that were found."""
        return chosen(self.entries, self.outputs, found)

    def unlearned(self) -> Self:
        """What to go on from after unlearning: with few examples left all is chosen again, as if
        the others had never been."""
        few = self.n_rows <= CHOSEN_AT_ONCE
        state = replace(self, solution=None) if few else self
        if not self.n_rows:
            return replace(self, solution=None)
        state = state.settled()
        assert state.solution is not None
        return replace(state, solution=state.solution.compacted())

    def conditionings(self) -> dict[str, Conditioning]:
        """What rows may be compared by, by name."""
        if self.keys is not None and isinstance(self.memory, Examples):
            return conditionings_of_keys(self.keys.conditioning)
        return fit_conditionings(self.memory.moments())

    def ready_for_changes(self) -> Self:
        """With what the first change needs that comes after a file was opened."""
        if self.solution is None or self.inference_only:
            return self
        return replace(self, solution=ready(self.solution, self.entries, self.outputs))

    def frozen(self) -> Self:
        """A smaller state that predicts alike and cannot change."""
        assert self.solution is not None
        solution = replace(self.solution, inverse=None, anchors=None, support=None)
        return replace(self, solution=solution, audit=(), inference_only=True)


@dataclass(frozen=True, eq=False)
class KernelState(Learned):
    """What was learned with labels: targets are positions in `labels.classes_`."""

    labels: LabelIndex = field(default_factory=LabelIndex)
    declared: frozenset[Any] = frozenset()  # labels that stay without examples

    @cached_property
    def class_counts(self) -> Places:
        """Examples per class (Y,), in the order of sorted labels."""
        counts = np.bincount(self.memory.targets, self.memory.counts, minlength=len(self.labels))
        return counts.astype(np.int64)

    @cached_property
    def factors(self) -> F64:
        """What scores of each class (Y,) are multiplied by; −∞ is added without examples."""
        return class_factors(self.class_counts.astype(np.float64))

    @cached_property
    def quality(self) -> Quality:
        """What the solution predicts for its own examples."""
        assert self.solution is not None
        return Quality.of(self.solution, self.memory, self.factors)

    @cached_property
    def calibration(self) -> Calibration:
        """Of scores; with many examples that of the last solution, which one more hardly moves."""
        if self.earlier_calibration is not None and self.n_rows > CHOSEN_AT_ONCE:
            return self.earlier_calibration
        return self.quality.calibration

    @property
    def outputs(self) -> Classes:
        """What values are columns of."""
        return Classes(len(self.labels))

    def scores(self, x: NDArray[np.float32]) -> F64:
        """Scores (n, Y), −∞ for a class without examples."""
        return self._scores_and_nearest(x)[0]

    def scores_and_novelty(self, x: NDArray[np.float32]) -> tuple[F64, F64]:
        """`scores` (n, Y) and `novelty` (n,) at once."""
        scores, nearest = self._scores_and_nearest(x)
        return scores, self._novelty(nearest)

    def _scores_and_nearest(self, x: NDArray[np.float32]) -> tuple[F64, F64]:
        n, n_classes = len(x), len(self.labels)
        if n * n_classes > MANY_SCORES:
            check_memory(f"scores ({n}, {n_classes})", 24 * n * n_classes, FEWER_INPUTS)
        assert self.solution is not None
        predicted, nearest = self.solution.predict_and_nearest(x)
        predicted *= self.factors
        predicted[:, self.class_counts == 0] = -np.inf
        return predicted, nearest

    def named(self, scores: F64) -> NDArray[Any]:
        """The label of the highest of scores (n, Y)."""
        labels: NDArray[Any] = self.labels.classes_[scores.argmax(axis=1)]
        return labels

    def probabilities(self, scores: F64) -> F64:
        """Probabilities (n, Y) that belong to scores (n, Y)."""
        return softmax(self.calibration.logits(scores))

    def decisions(self, scores: F64) -> F64:
        """Scores (n, Y); for two classes their log odds (n,)."""
        if scores.shape[1] != 2:
            return scores
        logits = self.calibration.logits(scores)
        odds: F64 = logits[:, 1] - logits[:, 0]
        return odds

    def suspects(self, n: int | None = None) -> list[Suspect]:
        """Examples whose label the others contradict, at most n, the least likely labels first."""
        quality, memory, classes = self.quality, self.memory, self.labels.classes_
        assert isinstance(memory, Examples)
        probabilities = quality.label_probabilities()
        order = np.argsort(probabilities, kind="stable")
        order = order[quality.predicted[order] != quality.targets[order]][:n]
        return [
            Suspect(
                id=None if memory.ids is None else memory.ids[place],
                label=classes[int(quality.targets[row])].item(),
                predicted=classes[int(quality.predicted[row])].item(),
                probability=float(probabilities[row]),
                x=memory.embeddings(quality.which[row : row + 1])[0],
            )
            for row, place in zip(order.tolist(), quality.which[order].tolist(), strict=True)
        ]

    def sorted_counts(self) -> list[int]:
        """Examples of each class, in the order of sorted labels."""
        counts: list[int] = self.class_counts.tolist()
        return counts

    # ---------------------------------------------------------------------------------- learning
    def learned(
        self,
        labels: LabelIndex,
        declared: frozenset[Any],
        X: NDArray[np.float32],
        y: Any,
        ids: Any = None,
    ) -> KernelState:
        """With examples X (n, m) of labels y (n,), which are in `labels`."""
        if len(labels) > MOST_CLASSES:
            raise ValueError(TOO_MANY_CLASSES.format(MOST_CLASSES, len(labels)))
        self._check_room(len(self.memory) + len(X), len(labels))
        state = self._with_labels(labels, declared)
        targets = class_indices(labels, y)
        if isinstance(self.memory, Cells):
            return state._plus(Cells.of(self.memory.coder, X, targets))
        return state._plus(Examples.of(X, targets, ids))

    def merge(self, other: KernelState) -> KernelState:
        """With all examples of another state of the same encoder and keys."""
        self.check_mergeable(other)
        labels = self.labels.copy()
        labels.add(other.labels.classes_, "other")
        self._check_room(len(self.memory) + len(other.memory), len(labels))
        theirs = other._with_labels(labels, frozenset()).memory
        merged = self._with_labels(labels, other.declared)._plus(theirs)
        return replace(merged, audit=(*self.audit, *other.audit))

    @property
    def is_solved_exactly(self) -> bool:
        """Whether every entry can be solved for where there are many."""
        return True

    def _check_room(self, n_entries: int, n_classes: int) -> None:
        """Raise where the values of so many classes do not fit in memory."""
        n = min(n_entries, MOST_POINTS)
        check_memory(
            f"values of {n} points for {n_classes} classes",
            40 * n * n_classes,  # targets, values, and what leaving one out predicts
            "learn fewer classes in one model",
        )

    # ---------------------------------------------------------------------------------- unlearning
    def forget(self, label: Any) -> KernelState:
        """Without a class."""
        index = int(class_indices(self.labels, [label], "label")[0])
        gone = self.memory.targets == index
        without = self._only(~gone, "forget", int(self.memory.counts[gone].sum()))
        return without._without_labels([label])

    def forget_samples(self, X: NDArray[np.float32], y: Any) -> KernelState:
        """Without examples X (n, m) that were learned with labels y (n,)."""
        targets = class_indices(self.labels, y)
        if isinstance(self.memory, Cells):
            less = self._minus(Cells.of(self.memory.coder, X, targets), "X, y")
            return less._recorded("forget_samples", len(X))._without_labels(less._empty())
        return self._forgotten(self._positions(X, targets, "X, y"))

    def forget_ids(self, ids: list[Any]) -> KernelState:
        """Without the examples that have these ids."""
        assert isinstance(self.memory, Examples)
        return self._forgotten(self.memory.of_ids(ids))

    def _forgotten(self, places: Places) -> KernelState:
        mask = np.ones(len(self.memory), bool)
        mask[places] = False
        without = self._only(mask, "forget_samples", len(places))
        return without._without_labels(without._empty())

    # ---------------------------------------------------------------------------------- relabelling
    def rename(self, label: Any, new_label: Any) -> KernelState:
        """With another name for a class."""
        labels = self.labels.renamed(label, new_label)
        declared = frozenset(new_label if one == label else one for one in self.declared)
        return self._relabelled_columns(labels, self._table(labels, {label: new_label}), declared)

    def merge_classes(self, given: list[Any], into: Any) -> KernelState:
        """With one class in place of several; the choice of settings is made again."""
        labels = self.labels.after_call(None, [into], name="into")
        for label in given:
            if label != into:
                labels.remove(label)
        names = dict.fromkeys(given, into)
        targets = self._table(labels, names)[self.memory.targets]
        memory = self.memory
        return replace(
            self,
            labels=labels,
            memory=memory.regrouped(targets)
            if isinstance(memory, Cells)
            else memory.with_targets(targets),
            declared=frozenset(names.get(one, one) for one in self.declared),
            solution=None,
        )

    def _table(self, labels: LabelIndex, names: dict[Any, Any]) -> Places:
        """The index in `labels` of each class, by its name or another one."""
        new = [names.get(one, one) for one in self.labels.classes_.tolist()]
        found: Places = np.searchsorted(labels.classes_, np.array(new, dtype=labels.classes_.dtype))
        return found

    def relabel(self, X: NDArray[np.float32], y_old: Any, y_new: Any) -> KernelState:
        """With examples X (n, m) of labels y_old (n,) learned as y_new (n,) instead."""
        old = class_indices(self.labels, y_old)
        if isinstance(self.memory, Cells):
            before = self._minus(Cells.of(self.memory.coder, X, old), "X, y_old")
            labels = before.labels.after_call(None, y_new, name="y_new")
            state = before.learned(labels, frozenset(), X, y_new)._recorded("relabel", len(X))
            return state._without_labels(state._empty())
        return self._relabelled(self._positions(X, old, "X, y_old"), np.asarray(y_new))

    def relabel_ids(self, ids: list[Any], y_new: Any) -> KernelState:
        """With the examples of these ids (n,) learned as y_new (n,) instead."""
        new = dict(zip(ids, y_new.tolist(), strict=True))
        if len(new) < len(ids):
            raise ValueError("ids: expected each once; got one twice; nothing was changed")
        assert isinstance(self.memory, Examples)
        places = self.memory.of_ids(ids)
        known = [] if self.memory.ids is None else self.memory.ids[places].tolist()
        return self._relabelled(places, np.array([new[own] for own in known], dtype=y_new.dtype))

    def _relabelled(self, places: Places, y_new: Any) -> KernelState:
        """With other labels (n,) for the examples at some positions (n,)."""
        assert isinstance(self.memory, Examples)
        labels = self.labels.after_call(None, y_new, name="y_new")
        state = self._with_labels(labels, frozenset())
        assert isinstance(state.memory, Examples)
        chosen, mask = np.argsort(places), np.ones(len(self.memory), bool)
        mask[places] = False
        moved = state.memory.kept(~mask).with_targets(class_indices(labels, y_new)[chosen])
        changed = state._kept(mask)._plus(moved)._recorded("relabel", len(places))
        return changed._without_labels(changed._empty())

    def _empty(self) -> list[Any]:
        """Labels without examples that nobody declared."""
        pairs = zip(self.labels.classes_.tolist(), self.sorted_counts(), strict=True)
        return [label for label, n in pairs if n == 0 and label not in self.declared]

    def _without_labels(self, gone: list[Any]) -> KernelState:
        """Without classes that have no examples."""
        if not gone:
            return self
        labels, before = self.labels.copy(), self.labels.classes_
        for label in gone:
            labels.remove(label)
        left = ~np.isin(before, np.array(gone, dtype=before.dtype))
        table = np.cumsum(left) - 1
        solution = self.solution
        if solution is not None:
            solution = solution.without_columns(left)
        return replace(
            self,
            labels=labels,
            memory=self.memory.with_targets(table[self.memory.targets]),
            declared=self.declared - frozenset(gone),
            solution=solution,
        )

    def _with_labels(self, labels: LabelIndex, declared: frozenset[Any]) -> KernelState:
        """With more classes."""
        declared = self.declared | declared
        if len(labels) == len(self.labels):
            return replace(self, labels=labels, declared=declared, **self._carried)
        table = np.searchsorted(labels.classes_, self.labels.classes_)
        return replace(self._relabelled_columns(labels, table, declared), **self._carried)

    def _relabelled_columns(
        self, labels: LabelIndex, table: Places, declared: frozenset[Any]
    ) -> KernelState:
        """With labels among which class i has the index table[i]."""
        solution = self.solution
        if solution is not None:
            solution = solution.with_columns(table, len(labels))
        memory = self.memory.with_targets(table[self.memory.targets])
        return replace(self, labels=labels, memory=memory, declared=declared, solution=solution)

    def adopting(self, earlier: KernelState) -> KernelState | None:
        """With the solution of a state from which this one came by learning alone; what was learned
        since is pending. None where something was unlearned, relabelled or renamed since."""
        n, s = len(earlier.memory), earlier.solution
        known = np.isin(earlier.labels.classes_, self.labels.classes_)
        if s is None or s.pending or type(self.memory) is not type(earlier.memory):
            return None
        if self.audit != earlier.audit:  # something was unlearned or relabelled since
            return None
        if n > len(self.memory) or not known.all():
            return None
        table = np.searchsorted(self.labels.classes_, earlier.labels.classes_)
        hashes, targets = self.memory.hashes[:n], self.memory.targets[:n]
        same = (hashes == earlier.memory.hashes) & (targets == table[earlier.memory.targets])
        touched = np.nonzero(self.memory.counts[:n] != earlier.memory.counts)[0]
        if not same.all() or (self.memory.counts[touched] < earlier.memory.counts[touched]).any():
            return None
        solution = s.with_columns(table, len(self.labels)).touched(touched)
        return replace(
            self,
            solution=solution.appended(len(self.memory) - n),
            earlier_calibration=earlier.calibration,
            earlier_distances=earlier.reference_distances,
        )

    def canonical(self) -> KernelState:
        """The same with the memory in canonical order."""
        order = self.memory.order
        solution = self.solution
        if solution is not None:
            solution = solution.compacted().reordered(order)
        return replace(self, memory=self.memory.canonical(), solution=solution)


def empty(width: int, keys: Any, coder: Coder | None) -> KernelState:
    """The state of a model that has learned nothing of embeddings (n, width)."""
    memory = Examples.empty(width) if coder is None else Cells.empty(coder)
    return KernelState(memory, keys)


def class_indices(labels: LabelIndex, y: Any, name: str = "y") -> Places:
    """Positions (n,) of labels y (n,) among the sorted labels; an error that names others."""
    rank = np.empty(len(labels), np.int64)
    rank[labels.order] = np.arange(len(rank))
    indices: Places = rank[labels.indices(y, name)]
    return indices
