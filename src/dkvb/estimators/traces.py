"""What must be kept of rows to learn them again: codes or conditioned rows, and labels.

Learning from traces is learning from the rows, bit for bit, so that a journal of traces can take
the place of what was learned since a file was written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dkvb._support.files import State
from dkvb.estimators._keyed import KeyedClassifier
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.serialisation import labels_from, labels_state


def traces(classifier: KeyedClassifier, X: Any, y: Any) -> State:
    """The traces of rows X (n, m) with labels y (n,), checked: never X itself."""
    memory = classifier._open("learn")
    rows, targets = classifier._checked(X, y)
    classifier._remember_features(X, reset=False)
    labels = LabelIndex()
    labels.add(targets, "y")
    memory.labels.copy().add(targets, "y")  # raises for labels of another kind
    columns = torch.from_numpy(labels.columns(targets))
    state = memory.rule.trace(rows).with_part("labels", labels_state(labels))
    state.facts["keys"] = memory.keys.fingerprint
    state.tensors["columns"] = columns
    return state


def learn_traces(classifier: KeyedClassifier, state: State) -> int:
    """Learn what `traces` described; the number of rows."""
    memory = classifier._open("learn")
    if state.fact("keys", str) != memory.keys.fingerprint:
        raise state.damaged("keys: expected the traces of this model's own keys; got others")
    index = labels_from(state.part("labels"))
    columns = state.whole_numbers("columns", (None,), high=max(1, len(index))).numpy()
    if not len(columns):
        raise state.damaged("columns: expected at least one row")
    own = np.empty_like(index.classes_)
    own[index.order] = index.classes_
    targets = own[columns]  # (n,)
    rows = memory.rule.retrace(state, len(columns))
    labels = memory.labels.copy()
    labels.add(targets, "y")
    classifier._memory = memory.learn(labels, frozenset(), rows, targets)
    return len(columns)
