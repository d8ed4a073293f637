"""What a model folder asks of a classifier."""

from __future__ import annotations

from copy import copy, deepcopy
from pathlib import Path
from typing import Any

from dkvb._support.files import State
from dkvb.deploy.store import layout


def is_journaled(classifier: Any) -> bool:
    """Return whether what it learns can be journaled; others write a snapshot per operation."""
    return hasattr(classifier, "journal_record")


def journals_embeddings(classifier: Any) -> bool:
    """Return whether its journal holds embeddings that no snapshot does."""
    return bool(getattr(getattr(classifier, "rule_", None), "journals_embeddings", False))


def journal_record(classifier: Any, X: Any, y: Any) -> State:
    """Return what must be kept of X and y to learn them again, checked; nothing is learned."""
    record: State = classifier.journal_record(X, y)
    return record


def replay(classifier: Any, record: State) -> int:
    """Learn what `journal_record` described, and return the number of rows."""
    if not is_journaled(classifier):
        raise record.damaged("expected no journal for a classifier that keeps none")
    count: int = classifier.replay(record)
    return count


def working_copy(classifier: Any) -> Any:
    """Return a classifier to change, while threads predict with the one that was handed out."""
    # What a journaled classifier has learned is one value, which no operation changes.
    return copy(classifier) if is_journaled(classifier) else deepcopy(classifier)


def total_count(classifier: Any) -> int:
    """Return how many rows a classifier has learned; 0 where it does not count."""
    return sum(getattr(classifier, "class_count_", {}).values())


def keys_file(classifier: Any) -> str | None:
    """Return the name of the file for a classifier's keys; None where it has none."""
    versions = getattr(classifier, "key_versions_", None)
    return layout.keys_name(versions[0].fingerprint) if versions else None


def file_state(classifier: Any, folder: Path, keys: Path | None) -> State:
    """Return what a snapshot holds; keys that are not there yet are written to their own file."""
    state: State = (
        classifier._file_state() if keys is None else classifier._file_state(folder, keys)
    )
    return state
