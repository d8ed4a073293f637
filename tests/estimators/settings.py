"""Small settings under which each classifier learns easy problems in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkvb.estimators.registry import classifier_class, make_classifier

BOOKS = {"n_codebooks": 16, "key_dim": 3}
NEURONS = {"n_neurons": 64, "k": 5, "switch_after": 500}

# One entry for each model under test; what follows a dash tells apart settings of one classifier.
SMALL: dict[str, dict[str, Any]] = {
    "bottleneck": {**BOOKS, "learning_rate": 20.0, "epochs": 20},
    "kernel": {},
    "linear": {"learning_rate": 0.5, "epochs": 15, "batch_size": 32},
    "mlp": {
        "hidden": 16,
        "learning_rate": 0.02,
        "optimizer": "adam",
        "epochs": 20,
        "batch_size": 32,
    },
    "sdmlp": {**NEURONS, "learning_rate": 0.5, "epochs": 30},
    "sdmlp-ewc": {**NEURONS, "learning_rate": 0.5, "epochs": 30, "ewc_strength": 1.0},
    "ewc": {
        "hidden": 16,
        "learning_rate": 0.02,
        "optimizer": "adam",
        "epochs": 20,
        "batch_size": 32,
        "ewc_strength": 1.0,
    },
    "fly": {"n_cells": 400, "n_inputs": 3, "share": 0.3},
    "prototypes": {},
    "slda": {},
    "ranpac": {"n_features": 64},
    "neighbours": {"k": 5},
}

NAMES = list(SMALL)
ORDER_FREE = [
    "fly",
    "prototypes",
    "slda",
    "ranpac",
    "neighbours",
]


def small(name: str, **overrides: Any) -> Any:
    return make_classifier(name.partition("-")[0], {**SMALL[name], **overrides})


def class_of(name: str) -> Any:
    return classifier_class(name.partition("-")[0])


def blobs(n_classes: int, a_class: int = 20, width: int = 6, seed: int = 0) -> tuple[Any, Any]:
    """Well separated classes 0, 1, … in random order: rows (n, width) and labels (n,)."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(99).normal(size=(n_classes, width))
    y = rng.permutation(np.repeat(np.arange(n_classes), a_class))
    return (centres[y] + 0.4 * rng.normal(size=(len(y), width))).astype(np.float32), y
