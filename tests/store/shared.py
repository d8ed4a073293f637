"""Models to compare those on disk with."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkvb.estimators.registry import make_classifier

from ..support.files.models import bottleneck


def learned(name: str, *batches: Any) -> Any:
    """A kernel classifier or a bottleneck that learned these batches and nothing else."""
    model = make_classifier("kernel") if name == "kernel" else bottleneck()
    for X, y in batches:
        model.partial_fit(X, y)
    return model


def assert_same_state(one: Any, other: Any) -> None:
    ours, theirs = one.state_arrays(), other.state_arrays()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def class_counts(model: Any) -> dict[Any, int]:
    """How many rows of each class a model has learned."""
    counts: dict[Any, int] = model.class_count_
    return counts
