"""Models of shards: learned apart, merged as a tree, each shard once.

A model folder keeps the manifest of all that it has learned: the entries of its own history, and
those of the models that were merged into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sklearn.base import clone

from dkvb.store.history import Entry

LEARNING = ("fit", "learn")


class RepeatedShardError(ValueError):
    """A shard was merged before, or is there twice."""


def manifest(model: Any) -> tuple[Entry, ...]:
    """Return the entries of all that a model has learned, itself or by merging."""
    own = tuple(one for one in model.history if one.operation in LEARNING)
    return (*model.shards, *own)


def check_shards(known: Iterable[Entry], new: Iterable[Entry], name: str) -> tuple[Entry, ...]:
    """Return the new entries, or raise for one that is known: by its id, or by the same rows.

    `name` is what an error calls the model that the new entries are of.
    """
    added = tuple(new)
    before_by: dict[str, Entry] = {}  # ids and digests are told apart by their lengths
    for one in known:
        before_by |= {key: one for key in (one.id, one.digest) if key is not None}
    for one in added:
        found = (before_by.get(key) for key in (one.id, one.digest) if key is not None)
        before = next(filter(None, found), None)
        if before is not None:
            same = "" if before.id == one.id else f", the same rows as {before.id!r}"
            raise RepeatedShardError(
                f"{name}: expected shards that are not there yet; got {one.id!r}{same}, a copy of "
                f"one that is there already, since {before.time}: its {before.count} rows would "
                "count twice; leave it out"
            )
    return added


def new_like(classifier: Any) -> Any:
    """Return a classifier with the same keys and settings that has learned nothing."""
    params = {"keys": classifier.keys_} if hasattr(classifier, "keys_") else {}
    return clone(classifier).set_params(**params)


def merge_tree(classifiers: Iterable[Any]) -> Any:
    """Return one classifier with all that others have learned, merged as a balanced tree.

    The first ones are changed. Of n classifiers at most 1 + log2 n are held at a time, if they
    come from a generator.
    """
    merged: list[tuple[int, Any]] = []  # (height, classifier) of finished subtrees
    for one in classifiers:
        height = 0
        while merged and merged[-1][0] == height:
            left = merged.pop()[1]
            one, height = left.merge(one), height + 1
        merged.append((height, one))
    if not merged:
        raise ValueError("classifiers: expected at least one; got none")
    found = merged.pop()[1]
    while merged:
        found = merged.pop()[1].merge(found)
    return found


def path_of(path: Path) -> Path:
    """Return the folder of a model, also for the snapshot in it."""
    path = path.resolve()
    return path.parent if path.name == "model.safetensors" else path
