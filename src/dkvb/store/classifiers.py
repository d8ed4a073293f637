"""What a model folder asks of a classifier."""

from __future__ import annotations

from copy import copy, deepcopy
from pathlib import Path
from typing import Any

from dkvb._support.files import State
from dkvb.store import layout


def is_journaled(classifier: Any) -> bool:
    """Return whether what it learns can be journaled; others write a snapshot per operation."""
    return hasattr(classifier, "journal_record")


def keeps_ids(classifier: Any) -> bool:
    """Return whether learned rows are kept one by one, with ids by which they are found again."""
    return getattr(classifier, "keep", None) == "examples"


def journal_record(classifier: Any, X: Any, y: Any, ids: Any = None) -> State:
    """Return what must be kept of X and y to learn them again, checked; nothing is learned."""
    record: State = classifier.journal_record(X, y, **({} if ids is None else {"ids": ids}))
    return record


def replay(classifier: Any, operation: str, record: State) -> int:
    """Do what a record of a journal describes, and return the number of rows."""
    if not is_journaled(classifier):
        raise record.damaged("expected no journal for a classifier that keeps none")
    count: int
    if operation == "learn":
        count = classifier.replay(record)
    elif operation == "relabel":
        count = classifier.replay_relabel(record)
    elif operation == "rename":
        label = record.fact("label", _LABEL)
        count = classifier.class_count_.get(label, 0)
        classifier.rename(label, record.fact("new_label", _LABEL))
    elif operation == "merge_classes":
        labels, into = record.fact("labels", list), record.fact("into", _LABEL)
        count = sum(classifier.class_count_.get(one, 0) for one in labels if one != into)
        classifier.merge_classes(labels, into)
    else:  # undo: what it undid is not in the journal any more
        count = 0
    return count


_LABEL = (str, int, bool)


def working_copy(classifier: Any) -> Any:
    """Return a classifier to change, while threads predict with the one that was handed out."""
    # What a journaled classifier has learned is one value, which no operation changes.
    return copy(classifier) if is_journaled(classifier) else deepcopy(classifier)


def prepared(classifier: Any) -> Any:
    """Return a classifier that the next change finds ready, where it can be made so."""
    if hasattr(classifier, "prepare") and total_count(classifier):
        classifier.prepare()
    return classifier


def total_count(classifier: Any) -> int:
    """Return how many rows a classifier has learned; 0 where it does not count."""
    return sum(getattr(classifier, "class_count_", {}).values())


def keys_file(classifier: Any) -> str | None:
    """Return the name of the file for a classifier's keys; None where it has none."""
    keys = getattr(classifier, "keys_", None)
    return layout.keys_name(keys.fingerprint) if keys is not None else None


def file_state(classifier: Any, folder: Path, keys: Path | None) -> State:
    """Return what a snapshot holds; keys that are not there yet are written to their own file."""
    state: State = (
        classifier._file_state() if keys is None else classifier._file_state(folder, keys)
    )
    return state
