"""Small trained models of every kind that can be exported, and rows to compare answers on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dkvb import BottleneckClassifier, Keys, fit_keys

WIDTH = 12
NAMES = np.array(["ant", "bee", "cat", "dog", "élan"])

# What a classifier can be told that changes how it answers.
SETTINGS: dict[str, dict[str, Any]] = {
    "used": {},
    "all": {"candidate_keys": "all"},
    "bfloat16": {"value_dtype": "bfloat16"},
}


def rows(n: int, width: int = WIDTH, seed: int = 0, signed: bool = True) -> tuple[Any, Any]:
    """Overlapping classes of unequal size: rows (n, width) float32, labels (n,) of strings."""
    rng = np.random.default_rng(seed)
    centres = 1.5 * np.random.default_rng(99).normal(size=(len(NAMES), width))
    y = np.minimum(rng.geometric(0.35, size=n) - 1, len(NAMES) - 1)
    X = (centres[y] + rng.normal(size=(n, width))).astype(np.float32)
    return X if signed else np.maximum(X, 0), NAMES[y]


@cache
def keys(conditioning: str = "half-whitened", projection: str = "gaussian") -> Keys:
    # Identity takes the whole row, partition its share, gaussian what is asked for.
    sizes = {"gaussian": 3, "partition": WIDTH // 6, "identity": WIDTH}
    return fit_keys(
        rows(500, seed=1)[0],
        n_codebooks=6,
        n_pairs=32,
        key_dim=sizes[projection],
        method="sample",
        projection=projection,
        conditioning=conditioning,
    )


@cache
def trained(name: str, conditioning: str = "half-whitened", projection: str = "gaussian") -> Any:
    return made(name, keys(conditioning, projection)).fit(*rows(150, seed=2))


def made(name: str, own: Keys, **params: Any) -> BottleneckClassifier:
    """A classifier of these settings over keys."""
    return BottleneckClassifier(own, epochs=3, learning_rate=20.0, **SETTINGS[name], **params)
