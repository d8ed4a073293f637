"""A bottleneck classifier's memory as tensors and facts, and back."""

from __future__ import annotations

from typing import Any

import torch

from dkvb._support.files import State
from dkvb.bottleneck import Keys
from dkvb.estimators._memory import AuditRecord, Memory
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.serialisation import labels_from, labels_state
from dkvb.rules.serialisation import rule_from, rule_state


def memory_state(memory: Memory, sealed: bool, dtype: str | None) -> State:
    """Labels, rows a class, what the rule learned, and where that came from."""
    facts = {
        "sealed": sealed,
        "declared": sorted(memory.declared),
        "generations": [keys.fingerprint for keys in memory.generations],
        "audit": [[record.operation, record.rows, record.pairs] for record in memory.audit],
    }
    own = State({"rows": torch.from_numpy(memory.rows)}, facts)
    return own.with_part("labels", labels_state(memory.labels)).with_part(
        "rule", rule_state(memory.rule, dtype)
    )


def memory_from(state: State, classifier: Any, keys: dict[str, Keys]) -> Memory:
    """The memory that `memory_state` describes."""
    names = state.fact("generations", list)
    if not names or not all(isinstance(name, str) and name in keys for name in names):
        raise state.damaged("generations: expected keys that the file holds or names")
    generations = [keys[name] for name in names]
    labels = labels_from(state.part("labels"))
    rows = state.whole_numbers("rows", (len(labels),)).numpy()
    rule = rule_from(state.part("rule"), classifier, generations[-1], len(labels))
    return Memory(
        labels, rows, _declared(state, labels), rule, tuple(generations[:-1]), _audit(state)
    )


def _declared(state: State, labels: LabelIndex) -> frozenset[Any]:
    declared = state.fact("declared", list)
    if not all(isinstance(label, str | int | float) and label in labels for label in declared):
        raise state.damaged("declared: expected labels that are there")
    return frozenset(declared)


def _audit(state: State) -> tuple[AuditRecord, ...]:
    records = state.fact("audit", list)
    if not all(
        isinstance(record, list) and [type(item) for item in record] == [str, int, int]
        for record in records
    ):
        raise state.damaged("audit: expected an operation and two numbers a record")
    return tuple(AuditRecord(*record) for record in records)
