"""All that a kernel classifier has learned, as one value: every operation returns the next.

A state is immutable. An error changes nothing, and threads that predict while another thread learns
use either the old state or the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.validation import check_memory
from dkvb.bottleneck import Keys
from dkvb.estimators.base import FEWER_INPUTS, MANY_SCORES
from dkvb.estimators.changeable import AuditRecord
from dkvb.estimators.kernel.choice import select_setting
from dkvb.estimators.kernel.conditionings import conditionings_from_keys, fit_conditionings
from dkvb.estimators.kernel.examples import Examples, content_hashes, distinct
from dkvb.estimators.kernel.quality import Quality, Suspect
from dkvb.estimators.kernel.ridge import class_factors
from dkvb.estimators.kernel.solution import Solution, extend, solve, with_classes
from dkvb.estimators.labels import MOST_CLASSES, TOO_MANY_CLASSES, LabelIndex

SOLVED_AT_ONCE = 2000  # examples; more are solved for on first use, unless an update is cheap
CHEAP_UPDATE = 1e10  # numbers of an inverse that are read: about a second


@dataclass(frozen=True, eq=False)
class KernelState:
    """Labels, examples, and the solution for them once there is one."""

    labels: LabelIndex
    examples: Examples  # class indices are positions in labels.classes_
    declared: frozenset[Any] = frozenset()  # labels that stay without examples
    keys: Keys | None = None  # whose conditioning is used; None: fitted to the examples
    audit: tuple[AuditRecord, ...] = ()
    solution: Solution | None = None
    earlier: Solution | None = None  # of some of these examples; None where a choice is due
    inference_only: bool = False

    @cached_property
    def class_counts(self) -> Tensor:
        """Examples per class (Y,), in the order of sorted labels."""
        return self.examples.class_counts(len(self.labels))

    @cached_property
    def factors(self) -> Tensor:
        """What scores of each class (Y,) are multiplied by; −∞ is added without examples."""
        return class_factors(self.class_counts)

    @cached_property
    def reference_distances(self) -> Tensor:
        """Squared distances between learned examples and their nearest others, sorted."""
        assert self.solution is not None
        return self.solution.reference_distances()

    @cached_property
    def quality(self) -> Quality:
        """What the solution predicts for its own examples."""
        assert self.solution is not None
        return Quality.of(self.solution, self.examples, self.factors)

    def scores(self, x: Tensor) -> Tensor:
        """Scores (n, Y) float64 on the CPU, −∞ for a class without examples."""
        n, n_classes = len(x), len(self.labels.order)
        if n * n_classes > MANY_SCORES:
            check_memory(f"scores ({n}, {n_classes})", 24 * n * n_classes, FEWER_INPUTS)
        assert self.solution is not None
        return self._masked(self.solution.scores(x, self.factors.to(self.solution.z.device)))

    def scores_and_novelty(self, x: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
        """`scores` (n, Y) and `novelty` (n,) at once."""
        assert self.solution is not None
        factors = self.factors.to(self.solution.z.device)
        scores, nearest = self.solution.scores_and_nearest(x, factors)
        return self._masked(scores), self._novelty(nearest)

    def novelty(self, x: Tensor) -> NDArray[np.float64]:
        """The share (n,) of examples whose nearest other example is nearer than theirs."""
        assert self.solution is not None
        return self._novelty(self.solution.nearest_distances(x))

    def _masked(self, scores: Tensor) -> Tensor:
        return scores.cpu().masked_fill(self.class_counts == 0, -torch.inf)

    def _novelty(self, nearest: Tensor) -> NDArray[np.float64]:
        reference = self.reference_distances
        if not len(reference):  # one example: there is nothing to compare with
            alone: NDArray[np.float64] = (1 - torch.exp(-nearest)).numpy()
            return alone
        nearer = torch.searchsorted(reference, nearest)
        share: NDArray[np.float64] = nearer.double().numpy() / len(reference)
        return share

    def suspects(self, n: int | None = None) -> list[Suspect]:
        """Examples whose label the others contradict, at most n, the least likely labels first."""
        quality, examples, classes = self.quality, self.examples, self.labels.classes_
        probabilities = quality.label_probabilities()
        order = torch.argsort(probabilities, stable=True)
        order = order[quality.predicted[order] != quality.targets[order]][:n]
        return [
            Suspect(
                id=None if examples.ids is None else examples.ids[place],
                label=classes[int(quality.targets[row])].item(),
                predicted=classes[int(quality.predicted[row])].item(),
                probability=float(probabilities[row]),
                x=examples.embeddings(slice(place, place + 1))[0].numpy(),
            )
            for row, place in zip(order.tolist(), quality.which[order].tolist(), strict=True)
        ]

    # ---------------------------------------------------------------------------------- examples
    def sorted_counts(self) -> list[int]:
        """Examples of each class, in the order of sorted labels."""
        counts: list[int] = self.class_counts.tolist()
        return counts

    def merge(self, other: KernelState) -> KernelState:
        """With all examples of another state of the same encoder and keys."""
        widths = [state.examples.halves.shape[1] for state in (self, other)]
        if widths[0] != widths[1]:
            raise ValueError(
                f"other: expected embeddings of width {widths[0]}; got {widths[1]}; "
                "merge classifiers of one encoder"
            )
        ours, given = (None if s.keys is None else s.keys.fingerprint for s in (self, other))
        if ours != given:
            raise ValueError("other: expected the same keys; got others; fit keys once for both")
        labels = self.labels.copy()
        labels.add(other.labels.classes_, "other")
        theirs = other._with_labels(labels, frozenset()).examples
        state = self._with_labels(labels, other.declared)
        merged = state._with_examples(state.examples.union(theirs))
        return replace(merged, audit=(*self.audit, *other.audit))

    def forget(self, label: Any) -> KernelState:
        """Without a class."""
        index = int(class_indices(self.labels, [label], "label")[0])
        kept = self.examples.targets != index
        without = self._without(kept, "forget")
        return without._without_labels([label])

    def forget_samples(self, X: Any, y: Any) -> KernelState:
        """Without examples X (n, m) that were learned with labels y (n,)."""
        gone = Examples.of(torch.from_numpy(X), class_indices(self.labels, y))
        places = self.examples.positions(gone)
        if bool((places < 0).any()):
            raise ValueError(
                "X, y: expected at most the examples that were learned; "
                f"got {int((places < 0).sum())} others; nothing was changed"
            )
        return self._forgotten(places)

    def forget_ids(self, ids: list[Any]) -> KernelState:
        """Without the examples that have these ids."""
        return self._forgotten(self._places(ids))

    def rename(self, label: Any, new_label: Any) -> KernelState:
        """With another name for a class."""
        labels = self.labels.renamed(label, new_label)
        return self._renamed(labels, {label: new_label})

    def merge_classes(self, given: list[Any], into: Any) -> KernelState:
        """With one class in place of several; the choice of settings is made again."""
        labels = self.labels.after_call(None, [into], name="into")
        for label in given:
            if label != into:
                labels.remove(label)
        merged = self._renamed(labels, dict.fromkeys(given, into))
        return replace(merged, solution=None, earlier=None)

    def _renamed(self, labels: LabelIndex, names: dict[Any, Any]) -> KernelState:
        before = self.labels.classes_.tolist()
        new = np.array([names.get(one, one) for one in before], dtype=labels.classes_.dtype)
        table = torch.from_numpy(np.searchsorted(labels.classes_, new))

        def moved(solution: Solution | None) -> Solution | None:
            return None if solution is None else with_classes(solution, table, len(labels))

        same = len(labels) == len(before)
        return replace(
            self,
            labels=labels,
            examples=self.examples.with_targets(table).reordered(),
            declared=frozenset(names.get(one, one) for one in self.declared),
            solution=moved(self.solution) if same else None,
            earlier=moved(self.earlier) if same else None,
        )

    def _places(self, ids: list[Any]) -> Tensor:
        """Positions of the examples that have these ids."""
        known = [] if self.examples.ids is None else self.examples.ids.tolist()
        wanted = set(ids)
        missing = wanted - set(known)
        if missing:
            raise ValueError(
                f"ids: expected those of learned examples; got {sorted(map(str, missing))[:5]}; "
                "nothing was changed"
            )
        places = [place for place, own in enumerate(known) if own in wanted and own is not None]
        return torch.tensor(places, dtype=torch.int64)

    def relabel(self, X: Any, y_old: Any, y_new: Any) -> KernelState:
        """With examples X (n, m) of labels y_old (n,) learned as y_new (n,) instead."""
        x, old = torch.from_numpy(X), class_indices(self.labels, y_old)
        order = np.lexsort((old.numpy(), content_hashes(x).numpy()))  # the canonical one
        places = self.examples.positions(Examples.of(x, old))
        if bool((places < 0).any()):
            raise ValueError(
                "X, y_old: expected examples that were learned with these labels; "
                f"got {int((places < 0).sum())} others; nothing was changed"
            )
        return self._relabelled(places, np.asarray(y_new)[order])

    def relabel_ids(self, ids: list[Any], y_new: Any) -> KernelState:
        """With the examples of these ids (n,) learned as y_new (n,) instead."""
        new = dict(zip(ids, y_new.tolist(), strict=True))
        if len(new) < len(ids):
            raise ValueError("ids: expected each once; got one twice; nothing was changed")
        places = self._places(ids)
        known = [] if self.examples.ids is None else self.examples.ids[places.numpy()].tolist()
        labels = np.array([new[own] for own in known], dtype=y_new.dtype)
        return self._relabelled(places, labels)

    def _relabelled(self, places: Tensor, y_new: Any) -> KernelState:
        labels = self.labels.after_call(None, y_new, name="y_new")
        state = self._with_labels(labels, frozenset())
        targets = state.examples.targets.clone()
        targets[places] = class_indices(labels, y_new)
        examples = replace(state.examples, targets=targets).reordered()
        record = AuditRecord("relabel", len(places), len(places))
        changed = replace(
            state,
            examples=examples,
            solution=None,
            earlier=None,
            audit=(*self.audit, record),
        )
        return changed._without_labels(changed._empty())

    def _forgotten(self, places: Tensor) -> KernelState:
        kept = torch.ones(len(self.examples), dtype=torch.bool)
        kept[places] = False
        without = self._without(kept, "forget_samples")
        return without._without_labels(without._empty())

    def _without(self, kept: Tensor, operation: str) -> KernelState:
        n = len(kept) - int(kept.sum())
        record = AuditRecord(operation, n, n)
        return replace(
            self,
            examples=self.examples.take(kept),
            solution=None,
            earlier=None,
            audit=(*self.audit, record),
        )

    def _empty(self) -> list[Any]:
        """Labels without examples that nobody declared."""
        counts = self.examples.class_counts(len(self.labels)).tolist()
        labels = self.labels.classes_.tolist()
        pairs = zip(labels, counts, strict=True)
        return [label for label, n in pairs if n == 0 and label not in self.declared]

    def _without_labels(self, gone: list[Any]) -> KernelState:
        labels, before = self.labels.copy(), self.labels.classes_
        for label in gone:
            labels.remove(label)
        kept = ~np.isin(before, np.array(gone, dtype=before.dtype)) if gone else before == before
        table = torch.from_numpy(np.cumsum(kept) - 1)
        return replace(
            self,
            labels=labels,
            examples=self.examples.with_targets(table),
            declared=self.declared - frozenset(gone),
        )

    def _with_labels(self, labels: LabelIndex, declared: frozenset[Any]) -> KernelState:
        declared = self.declared | declared
        if len(labels) == len(self.labels):
            return replace(self, labels=labels, declared=declared)
        table = torch.from_numpy(np.searchsorted(labels.classes_, self.labels.classes_))
        earlier = self.solution or self.earlier
        return replace(
            self,
            labels=labels,
            examples=self.examples.with_targets(table),
            declared=declared,
            solution=None,
            earlier=None if earlier is None else with_classes(earlier, table, len(labels)),
        )

    def _with_examples(self, examples: Examples) -> KernelState:
        earlier = self.solution or self.earlier
        return replace(self, examples=examples, solution=None, earlier=earlier)

    # ---------------------------------------------------------------------------------- solution
    def solved(self, device: str, choose: bool = False) -> KernelState:
        """With a solution: an update of the earlier one, a new one with the same setting, or,
        where the examples have doubled since the last choice or `choose` says so, a new choice."""
        if self.solution is not None and not choose:
            return self
        earlier, rows = self.solution or self.earlier, distinct(self.examples, len(self.labels))
        if not choose and earlier is not None and not self._is_choice_due(earlier):
            solution = extend(earlier, rows, self.examples) or solve(
                earlier.setting,
                earlier.chosen_for,
                earlier.conditioning,
                earlier.function,
                self.examples,
                rows,
                device,
            )
            return replace(self, solution=solution, earlier=None)
        if self.keys is None:
            found = fit_conditionings(self.examples, device)
        else:
            found = conditionings_from_keys(self.keys.to(device).conditioning)
        setting, function, solved = select_setting(self.examples, rows, found, device)
        chosen = found[setting.conditioning]
        n = len(self.examples.targets)
        solution = solve(setting, n, chosen, function, self.examples, rows, device, solved)
        return replace(self, solution=solution, earlier=None)

    def solved_if_quick(self, device: str) -> KernelState:
        """With a solution, unless that takes long; then it is found on first use."""
        n = len(self.examples.targets)
        quick = 0 < n <= SOLVED_AT_ONCE
        if not quick and self.earlier is not None and self.earlier.inverse is not None:
            new = n - float(self.earlier.weights.sum())
            work = new * len(self.earlier.hashes) ** 2
            quick = work <= CHEAP_UPDATE and not self._is_choice_due(self.earlier)
        return self.solved(device) if quick else self

    def _is_choice_due(self, earlier: Solution) -> bool:
        return len(self.examples.targets) >= 2 * earlier.chosen_for

    def with_solution(self, solution: Solution, current: bool) -> KernelState:
        """With a solution that a file holds, of these examples or of earlier ones."""
        if current:
            return replace(self, solution=solution)
        return replace(self, earlier=solution)

    def frozen(self) -> KernelState:
        """A smaller state that predicts alike and cannot change."""
        assert self.solution is not None
        solution = replace(self.solution, inverse=None)
        return replace(self, solution=solution, earlier=None, audit=(), inference_only=True)


def empty(width: int, keys: Keys | None) -> KernelState:
    """The state of a model that has learned nothing of embeddings (n, width)."""
    nothing = torch.zeros(0, dtype=torch.int64)
    halves = torch.zeros((0, width), dtype=torch.float16)
    examples = Examples(halves, torch.zeros(0, dtype=torch.int16), nothing, nothing)
    return KernelState(LabelIndex(), examples, frozenset(), keys)


def learn(
    before: KernelState | None,
    labels: LabelIndex,
    declared: frozenset[Any],
    X: Any,
    y: Any,
    ids: Any = None,
    keys: Keys | None = None,
) -> KernelState:
    """The state before, or a first one, with examples X (n, m) of labels y (n,) in `labels`."""
    if len(labels) > MOST_CLASSES:
        raise ValueError(TOO_MANY_CLASSES.format(MOST_CLASSES, len(labels)))
    examples = Examples.of(torch.from_numpy(X), class_indices(labels, y), ids)
    if before is None:
        return KernelState(labels, examples, declared, keys)
    state = before._with_labels(labels, declared)
    return state._with_examples(state.examples.union(examples))


def class_indices(labels: LabelIndex, y: Any, name: str = "y") -> Tensor:
    """Positions (n,) of labels y (n,) among the sorted labels; an error that names others."""
    rank = np.empty(len(labels), np.int64)
    rank[labels.order] = np.arange(len(rank))
    indices: NDArray[np.int64] = rank[labels.indices(y, name)]
    return torch.from_numpy(indices)
