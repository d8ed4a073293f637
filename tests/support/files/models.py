"""Small models of every kind that can be saved, and how to compare two of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dkvb import BottleneckClassifier, fit_keys
from dkvb.memory import KernelClassifier

from ...estimators.settings import NAMES, blobs, small

NAMED = np.array(["yak", "ant", "bee", "cow"])
_STEPS: dict[str, Any] = {"epochs": 3, "learning_rate": 20.0, "batch_size": 8, "random_state": 5}
BOTTLENECKS: dict[str, dict[str, Any]] = {
    "float32": _STEPS,
    "bfloat16": {**_STEPS, "value_dtype": "bfloat16"},
}


@cache
def keys() -> Any:
    return fit_keys(blobs(6, seed=7)[0], preset="paper", n_codebooks=8, n_pairs=16, key_dim=3)


def bottleneck(name: str = "float32", **settings: Any) -> BottleneckClassifier:
    return BottleneckClassifier(keys(), **{**BOTTLENECKS[name], **settings})


def rows(seed: int = 0, classes: int = 4) -> tuple[Any, Any]:
    X, y = blobs(classes, a_class=15, seed=seed)
    return X, NAMED[y]


def make(name: str) -> Any:
    """A model by name: any classifier, or a bottleneck over shared keys."""
    return bottleneck(name) if name in BOTTLENECKS else small(name)


EVERY = [*NAMES, *BOTTLENECKS]


def answers(model: Any, X: Any) -> list[Any]:
    """All that can be asked of a model about rows."""
    methods = ("predict", "decision_function", "predict_proba", "novelty")
    return [getattr(model, method)(X) for method in methods if hasattr(model, method)]


def assert_same(one: Any, other: Any, X: Any) -> None:
    """The same parameters, state and answers, to the last bit.

    A kernel classifier solves anew where another has updated its solution: its answers are the
    same but for rounding.
    """
    assert type(one) is type(other)
    assert {k: str(v) for k, v in one.get_params().items()} == {
        k: str(v) for k, v in other.get_params().items()
    }
    if hasattr(one, "state_arrays"):
        ours, theirs = one.state_arrays(), other.state_arrays()
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert ours[name].dtype == theirs[name].dtype
            assert np.array_equal(ours[name], theirs[name]), name
        assert getattr(one, "audit_", []) == getattr(other, "audit_", [])
        assert one.class_count_ == other.class_count_
    if hasattr(one, "usage_"):
        assert np.array_equal(one.usage_, other.usage_)
    for ours, theirs in zip(answers(one, X), answers(other, X), strict=True):
        assert ours.dtype == theirs.dtype
        if isinstance(one, KernelClassifier) and ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
        else:
            assert np.array_equal(ours, theirs)
