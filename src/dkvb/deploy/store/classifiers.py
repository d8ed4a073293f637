"""What a model folder asks of a classifier."""

from __future__ import annotations

from copy import copy, deepcopy
from pathlib import Path
from typing import Any

from dkvb._support.files import State
from dkvb.deploy.store import layout


def is_journaled(classifier: Any) -> bool:
    """Return whether what it learns can be journaled; others write a snapshot per operation."""
    return hasattr(classifier, "journal_record") or hasattr(classifier, "generations_")


def journal_record(classifier: Any, X: Any, y: Any) -> State:
    """Return what must be kept of X and y to learn them again, checked; nothing is learned."""
    if hasattr(classifier, "journal_record"):
        record: State = classifier.journal_record(X, y)
        return record
    from dkvb.estimators.traces import traces

    return traces(classifier, X, y)


def replay(classifier: Any, record: State) -> int:
    """Learn what `journal_record` described, and return the number of rows."""
    if not is_journaled(classifier):
        raise record.damaged("expected no journal for a classifier that keeps none")
    if hasattr(classifier, "replay"):
        count: int = classifier.replay(record)
        return count
    from dkvb.estimators.traces import learn_traces

    return learn_traces(classifier, record)


def working_copy(classifier: Any) -> Any:
    """Return a classifier to change, while threads predict with the one that was handed out."""
    # What a journaled classifier has learned is one value, which no operation changes.
    return copy(classifier) if is_journaled(classifier) else deepcopy(classifier)


def total_count(classifier: Any) -> int:
    """Return how many rows a classifier has learned; 0 where it does not count."""
    counts = getattr(classifier, "class_count_", None) or getattr(classifier, "examples_", {})
    return sum(counts.values())


def keys_file(classifier: Any) -> str | None:
    """Return the name of the file for a classifier's keys; None where it has none."""
    versions = getattr(classifier, "key_versions_", None) or getattr(
        classifier, "generations_", None
    )
    return layout.keys_name(versions[0].fingerprint) if versions else None


def file_state(classifier: Any, folder: Path, keys: Path | None) -> State:
    """Return what a snapshot holds; keys that are not there yet are written to their own file."""
    state: State = (
        classifier._file_state() if keys is None else classifier._file_state(folder, keys)
    )
    return state
