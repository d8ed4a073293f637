"""What a journal holds of rows that a bottleneck classifier learned."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from dkvb._support.files import State
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.learned_state import LearnedState
from dkvb.estimators.serialisation import labels_from, labels_state


def record_of(state: LearnedState, batch: Any, y: NDArray[Any]) -> State:
    """The record of a batch of labels y (n,): codes or conditioned rows, and labels."""
    index = LabelIndex()
    index.add(y, "y")
    class_index = torch.from_numpy(index.indices(y))
    record = state.rule.journal_record(batch, class_index.to(state.keys.device))
    record = record.with_part("labels", labels_state(index))
    record.facts["keys"] = state.keys.fingerprint
    record.tensors["class_index"] = class_index
    return record


def rows_from(record: State, state: LearnedState) -> tuple[Any, NDArray[Any]]:
    """What the rule of a state learns from a record, and its labels (n,)."""
    if record.fact("keys", str) != state.keys.fingerprint:
        raise record.damaged("keys: expected a record of this model's own keys; got others")
    index = labels_from(record.part("labels"))
    name = record.first_of("class_index", "columns")
    class_index = record.whole_numbers(name, (None,), high=max(1, len(index))).numpy()
    if not len(class_index):
        raise record.damaged(f"{name}: expected at least one row")
    targets = index.in_order_of_appearance()[class_index]
    return state.rule.from_journal(record, len(targets)), targets
