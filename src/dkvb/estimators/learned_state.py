"""All that a bottleneck classifier has learned, as one value: every operation returns the next.

Nothing in it is ever changed, so that an error halfway changes nothing, and threads that predict
while another learns see either the old or the new, never a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.files import State
from dkvb.bottleneck import Keys
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.serialisation import labels_from, labels_state
from dkvb.rules.base import Rule, check_countable

ClassIndex = NDArray[np.int64]


@dataclass(frozen=True)
class AuditRecord:
    """What an operation changed; never which inputs or labels."""

    operation: str  # "forget_samples", "forget" or "relabel"
    rows: int  # removed, or given another label
    pairs: int  # whose counts or sums changed


@dataclass(frozen=True, eq=False)
class LearnedState:
    """Labels, what a rule has learned of them, and where that came from."""

    labels: LabelIndex
    class_counts: ClassIndex  # (Y,) rows learned of each class
    declared: frozenset[Any]  # labels that stay without rows
    rule: Rule  # fitted
    earlier_keys: tuple[Keys, ...] = ()  # versions before the rule's own
    audit: tuple[AuditRecord, ...] = ()
    inference_only: bool = False

    @property
    def keys(self) -> Keys:
        return self.rule.keys_

    @property
    def key_versions(self) -> tuple[Keys, ...]:
        """All keys this state was learned with, the latest last."""
        return (*self.earlier_keys, self.rule.keys_)

    def state_tensors(self) -> dict[str, Tensor]:
        """All that was learned, classes in the order of sorted labels: equal models, equal bits."""
        rank = np.empty(len(self.labels), np.int64)
        rank[self.labels.order] = np.arange(len(rank))
        return self.rule.map_classes(self.tensor(rank)).state_tensors()

    def forget_samples(self, batch: Any, y: Any) -> LearnedState:
        """Without rows of labels y (n,), as if they had never been learned."""
        class_index = self.labels.indices(y)
        rule, pairs = self.rule.unlearn(batch, self.tensor(class_index))
        left = self.class_counts - np.bincount(class_index, minlength=len(self.class_counts))
        if (left < 0).any():
            short = self.labels.to_list()[int(left.argmin())]
            raise ValueError(
                f"X, y: expected at most the rows that were learned; got more of label {short!r}; "
                "nothing was changed"
            )
        record = AuditRecord("forget_samples", len(class_index), pairs)
        without = replace(self, rule=rule, class_counts=left, audit=(*self.audit, record))
        return without._without_empty_classes()

    def forget(self, label: Any) -> LearnedState:
        """Without a class, as if none of its rows had been learned."""
        index = int(self.labels.indices([label], "label")[0])
        without = self._without_classes([index])
        changed = int((self.rule.usage() != without.rule.usage()).sum())
        record = AuditRecord("forget", int(self.class_counts[index]), changed)
        return replace(without, audit=(*self.audit, record))

    def sorted_counts(self) -> list[int]:
        """Rows learned of each class, in the order of sorted labels."""
        counts: list[int] = self.class_counts[self.labels.order].tolist()
        return counts

    def merge(self, other: LearnedState) -> LearnedState:
        """With all that another has learned with the same keys and rule."""
        theirs = other.labels.in_order_of_appearance()
        labels = self.labels.after_call(None, theirs, name="other")
        self._check_addable(other)
        target = labels.indices(theirs, "other") if len(theirs) else np.zeros(0, np.int64)
        class_counts = np.pad(self.class_counts, (0, len(labels) - len(self.class_counts)))
        class_counts[target] += other.class_counts
        check_countable(class_counts)
        return replace(
            self,
            labels=labels,
            class_counts=class_counts,
            declared=self.declared | other.declared,
            rule=self.rule.merge(other.rule, self.tensor(target), len(labels)),
            earlier_keys=max(self.earlier_keys, other.earlier_keys, key=len),
            audit=(*self.audit, *other.audit),
        )

    def rename(self, label: Any, new_label: Any) -> LearnedState:
        """With another name for a class."""
        declared = self.declared
        if label in declared:
            declared = declared - {label} | {new_label}
        return replace(self, labels=self.labels.renamed(label, new_label), declared=declared)

    def merge_classes(self, labels: list[Any], into: Any) -> LearnedState:
        """With one class in place of several, as if their rows had been learned with its label."""
        state = self
        for label in labels:
            if into not in state.labels:
                state = state.rename(label, into)
            elif label != into:
                state = state._with_class_moved(label, into)
        return state

    def _with_class_moved(self, label: Any, into: Any) -> LearnedState:
        index = int(self.labels.indices([label], "labels")[0])
        others = [i for i in range(len(self.class_counts)) if i != index]
        moved = replace(self._without_classes(others).rename(label, into), audit=())
        rest = self._without_classes([index])
        return rest.merge(replace(moved, declared=frozenset()))

    def with_keys(self, keys: Keys) -> LearnedState:
        """With a next version of keys."""
        return replace(self, rule=self.rule.with_keys(keys), earlier_keys=self.key_versions)

    def freeze(self) -> LearnedState:
        """A smaller one that predicts alike and cannot change."""
        rule = self.rule.freeze()
        return replace(self, rule=rule, earlier_keys=(), audit=(), inference_only=True)

    def check_continued(self, rule: Rule, keys: Any) -> None:
        """Raise where a classifier was given another rule or other keys since it began."""
        if type(self.rule) is not type(rule):
            raise ValueError(
                f"rule: expected {self.rule.name!r}, which has learned so far; got {rule.name!r}; "
                "fit starts a new model"
            )
        if isinstance(keys, Keys) and all(
            keys is not known and keys.fingerprint != known.fingerprint
            for known in self.key_versions
        ):
            raise ValueError(
                f"keys: expected those learned with so far; got {keys.fingerprint[:8]}; "
                "fit starts a new model"
            )

    def tensor(self, class_index: ClassIndex) -> Tensor:
        """Class indices on the device of the keys."""
        return torch.from_numpy(class_index).to(self.rule.keys_.device)

    def _check_addable(self, other: LearnedState) -> None:
        if type(other.rule) is not type(self.rule):
            raise ValueError(
                f"other: expected rule={self.rule.name!r}, as here; "
                f"got {other.rule.name!r}; what different rules learn cannot be added"
            )
        histories = (self.key_versions, other.key_versions)
        short, long = sorted(([k.fingerprint for k in keys] for keys in histories), key=len)
        if short != long[-len(short) :]:
            raise ValueError(
                f"other: expected keys {self.keys.fingerprint[:8]}, and the same before they grew; "
                f"got {other.keys.fingerprint[:8]}; fit keys once and give them to both classifiers"
            )

    def _without_empty_classes(self) -> LearnedState:
        labels = self.labels.to_list()
        empty = [
            index
            for index in np.flatnonzero(self.class_counts == 0).tolist()
            if labels[index] not in self.declared
        ]
        return self._without_classes(empty) if empty else self

    def _without_classes(self, class_index: list[int]) -> LearnedState:
        labels, gone = self.labels.copy(), [self.labels.to_list()[i] for i in class_index]
        for label in gone:
            labels.remove(label)
        kept = np.setdiff1d(np.arange(len(self.class_counts)), class_index)
        target = np.full(len(self.class_counts), -1)
        target[kept] = np.arange(len(kept))
        return replace(
            self,
            labels=labels,
            class_counts=self.class_counts[kept],
            declared=self.declared - frozenset(gone),
            rule=self.rule.map_classes(self.tensor(target)),
        )

    # ------------------------------------------------------------------------------------- files
    def to_state(self, dtype: str | None = None) -> State:
        """Labels, rows of each class, what the rule learned, and where that came from."""
        facts = {
            "inference_only": self.inference_only,
            "declared": sorted(self.declared),
            "key_versions": [keys.fingerprint for keys in self.key_versions],
            "audit": [[record.operation, record.rows, record.pairs] for record in self.audit],
        }
        own = State({"class_counts": torch.from_numpy(self.class_counts)}, facts)
        own = own.with_part("labels", labels_state(self.labels))
        return own.with_part("rule", self.rule.to_state(dtype))

    @classmethod
    def from_state(cls, state: State, rule: Rule, keys: dict[str, Keys]) -> LearnedState:
        """What `to_state` describes, for a rule with its parameters; also of formats before."""
        versions = state.fact(state.first_of("key_versions", "generations"), list)
        if not versions or not all(isinstance(name, str) and name in keys for name in versions):
            raise state.damaged("key_versions: expected keys that the file holds or names")
        labels = labels_from(state.part("labels"))
        counts = state.first_of("class_counts", "rows")
        declared = state.fact("declared", list)
        if not all(isinstance(label, str | int | float) and label in labels for label in declared):
            raise state.damaged("declared: expected labels that are there")
        records = state.fact("audit", list)
        if not all(
            isinstance(record, list) and [type(item) for item in record] == [str, int, int]
            for record in records
        ):
            raise state.damaged("audit: expected an operation and two numbers per record")
        *earlier, latest = (keys[name] for name in versions)
        # The one boolean, by its name or that of formats 1 and 2.
        flags = [name for name, fact in state.facts.items() if isinstance(fact, bool)]
        flags = [name for name in flags if "/" not in name]
        return cls(
            labels,
            state.whole_numbers(counts, (len(labels),)).numpy(),
            frozenset(declared),
            rule.from_state(state.part("rule"), latest, len(labels)),
            tuple(earlier),
            tuple(AuditRecord(*record) for record in records),
            state.fact(flags[0] if len(flags) == 1 else "inference_only", bool),
        )
