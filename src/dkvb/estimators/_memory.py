"""All that a bottleneck classifier has learned, as one value: every operation returns the next.

Nothing in it is ever changed, so that an error halfway leaves no trace, and threads that predict
while another learns see either the old or the new, never a mixture.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support import process_group
from dkvb.bottleneck import Keys
from dkvb.estimators.labels import LabelIndex
from dkvb.rules.base import Rule

Columns = NDArray[np.int64]


@dataclass(frozen=True)
class AuditRecord:
    """What an operation changed; never which inputs or labels."""

    operation: str  # "forget_samples", "forget" or "relabel"
    rows: int  # removed, or given another label
    pairs: int  # whose counts or sums changed


@dataclass(frozen=True, eq=False)
class Memory:
    """Labels, what a rule has learned of them, and where that came from."""

    labels: LabelIndex
    rows: Columns  # (Y,) rows learned of each class
    declared: frozenset[Any]  # labels that stay without rows
    rule: Rule
    earlier: tuple[Keys, ...] = ()  # generations of keys before the rule's own
    audit: tuple[AuditRecord, ...] = ()

    @property
    def keys(self) -> Keys:
        return self.rule.keys

    @property
    def generations(self) -> tuple[Keys, ...]:
        """All keys this memory was learned with, the latest last."""
        return (*self.earlier, self.keys)

    def state_tensors(self) -> dict[str, Tensor]:
        """All that was learned, columns in the order of sorted labels: equal models, equal bits."""
        rule = copy(self.rule)
        rank = np.empty(len(self.labels), np.int64)
        rank[self.labels.order] = np.arange(len(rank))
        rule.move_columns(self._tensor(rank))
        return rule.state_tensors()

    def learn(self, labels: LabelIndex, declared: frozenset[Any], rows: Any, y: Any) -> Memory:
        """With rows of labels y (n,), all of them in `labels`."""
        columns = labels.columns(y)
        rule = copy(self.rule)
        rule.grow(len(labels))
        rule.learn(rows, self._tensor(columns))
        counted = np.bincount(columns, minlength=len(labels))
        if rule.splits_rows:
            counted = process_group.all_reduce(torch.from_numpy(counted)).numpy()
        return replace(
            self,
            labels=labels,
            rows=counted + np.pad(self.rows, (0, len(labels) - len(self.rows))),
            declared=self.declared | declared,
            rule=rule,
        )

    def forget_samples(self, rows: Any, y: Any) -> Memory:
        """Without rows of labels y (n,), as if they had never been learned."""
        columns = self.labels.columns(y)
        rule = copy(self.rule)
        pairs = rule.unlearn(rows, self._tensor(columns))
        left = self.rows - np.bincount(columns, minlength=len(self.rows))
        if (left < 0).any():
            short = self.labels.to_list()[int(left.argmin())]
            raise ValueError(
                f"X, y: expected at most the rows that were learned; got more of label {short!r}; "
                "nothing was changed"
            )
        record = AuditRecord("forget_samples", len(columns), pairs)
        without = replace(self, rule=rule, rows=left, audit=(*self.audit, record))
        return without._without_empty_classes()

    def relabel(self, rows: Any, y_old: Any, y_new: Any) -> Memory:
        """With rows of labels y_old (n,) learned as y_new (n,) instead."""
        self.labels.copy().add(y_new, "y_new")  # raises for labels of another kind
        without = self.forget_samples(rows, y_old)
        labels = without.labels.copy()
        labels.add(y_new, "y_new")
        changed = without.learn(labels, frozenset(), rows, y_new)
        record = replace(without.audit[-1], operation="relabel")
        return replace(changed, audit=(*self.audit, record))

    def forget(self, label: Any) -> Memory:
        """Without a class, as if none of its rows had been learned."""
        column = int(self.labels.columns([label], "label")[0])
        without = self._without_columns([column])
        touched = int((self.rule.usage() != without.rule.usage()).sum())
        record = AuditRecord("forget", int(self.rows[column]), touched)
        return replace(without, audit=(*self.audit, record))

    def merge(self, other: Memory) -> Memory:
        """With all that another memory has learned with the same keys and rule."""
        self._check_addable(other)
        labels = self.labels.copy()
        theirs = _in_columns(other.labels)
        labels.add(theirs, "other")
        target = labels.columns(theirs, "other") if len(theirs) else np.zeros(0, np.int64)
        rule = copy(self.rule)
        rule.grow(len(labels))
        rule.merge(other.rule, self._tensor(target))
        rows = np.pad(self.rows, (0, len(labels) - len(self.rows)))
        rows[target] += other.rows
        return replace(
            self,
            labels=labels,
            rows=rows,
            declared=self.declared | other.declared,
            rule=rule,
            earlier=max(self.earlier, other.earlier, key=len),
            audit=(*self.audit, *other.audit),
        )

    def change_keys(self, keys: Keys) -> Memory:
        """With a next generation of keys."""
        rule = copy(self.rule)
        rule.change_keys(keys)
        return replace(self, rule=rule, earlier=self.generations)

    def of(self, classifier: Any) -> Memory:
        """The same for another classifier, whose parameters are read from now on."""
        rule = copy(self.rule)
        rule.settings = classifier
        return replace(self, rule=rule)

    def sealed(self) -> Memory:
        """A smaller one that predicts alike."""
        return replace(self, rule=self.rule.sealed(), earlier=(), audit=())

    def check_continued(self, rule: type[Rule], keys: Keys | None) -> None:
        """Raise where a classifier was given another rule or other keys since it began."""
        if type(self.rule) is not rule:
            raise ValueError(
                f"rule: expected the one that has learned so far; got {self.rule.settings.rule!r}; "
                "fit starts a new model"
            )
        if keys is not None and keys.fingerprint not in [k.fingerprint for k in self.generations]:
            raise ValueError(
                f"keys: expected those learned with so far; got {keys.fingerprint[:8]}; "
                "fit starts a new model"
            )

    def _check_addable(self, other: Memory) -> None:
        if type(other.rule) is not type(self.rule):
            raise ValueError(
                f"other: expected rule={self.rule.settings.rule!r}, as here; "
                f"got {other.rule.settings.rule!r}; what different rules learn cannot be added"
            )
        histories = (self.generations, other.generations)
        short, long = sorted(([k.fingerprint for k in keys] for keys in histories), key=len)
        if short != long[-len(short) :]:
            raise ValueError(
                f"other: expected keys {self.keys.fingerprint[:8]}, and the same before they grew; "
                f"got {other.keys.fingerprint[:8]}; fit keys once and give them to both classifiers"
            )

    def _without_empty_classes(self) -> Memory:
        labels = self.labels.to_list()
        empty = [
            column
            for column in np.flatnonzero(self.rows == 0).tolist()
            if labels[column] not in self.declared
        ]
        return self._without_columns(empty) if empty else self

    def _without_columns(self, columns: list[int]) -> Memory:
        labels, gone = self.labels.copy(), [self.labels.to_list()[column] for column in columns]
        for label in gone:
            labels.remove(label)
        kept = np.setdiff1d(np.arange(len(self.rows)), columns)
        target = np.full(len(self.rows), -1)
        target[kept] = np.arange(len(kept))
        rule = copy(self.rule)
        rule.move_columns(self._tensor(target))
        declared = self.declared - frozenset(gone)
        return replace(self, labels=labels, rows=self.rows[kept], declared=declared, rule=rule)

    def _tensor(self, columns: Columns) -> Tensor:
        return torch.from_numpy(columns).to(self.keys.device)


def _in_columns(index: LabelIndex) -> NDArray[Any]:
    """The labels in the order of their columns, in their own dtype."""
    labels = np.empty_like(index.classes_)
    labels[index.order] = index.classes_
    return labels
