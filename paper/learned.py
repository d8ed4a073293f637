"""Trained classifiers for experiments that inspect them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dkvb.bottleneck import Keys
from dkvb.evaluation import streams
from dkvb.evaluation.grid import ClassifierSpec, DeviceData, make_from_spec, set_shared_keys
from paper import models
from paper.experiment import Setup


@dataclass(frozen=True)
class Learned:
    """A classifier trained on a stream, with its prepared training and test data."""

    classifier: Any
    train: Any
    test: Any
    y_train: Any
    y_test: Any


def learn(setup: Setup, data: DeviceData, spec: ClassifierSpec, order: str, seed: int) -> Learned:
    """Train a classifier on a stream, as `evaluate` does, and return it."""
    classifier = make_from_spec(spec, seed=seed, device=setup.device, epochs=setup.config.epochs)
    if hasattr(classifier, "fit_keys"):
        classifier = set_shared_keys(classifier, data, seed)
    (x, y), (x_test, y_test) = data.inputs_for(spec)
    x, x_test = data.prepare(classifier, x), data.prepare(classifier, x_test)
    classes = np.unique(np.concatenate([y, y_test]))
    iid = order == "iid"
    for task in streams.iid(y, seed) if iid else streams.class_incremental(y, 2, seed):
        classifier.partial_fit(x[task.indices], y[task.indices], classes=classes)
    return Learned(classifier, x, x_test, y, y_test)


def fit_shared_keys(setup: Setup, data: DeviceData, seed: int, **changes: Any) -> Keys:
    """Return the keys of this configuration's bottleneck, fitted once per seed."""
    spec = models.bottleneck(setup.config, **changes)
    made = make_from_spec(spec, seed=seed, device=setup.device)
    keys: Keys = set_shared_keys(made, data, seed).keys
    return keys


def accuracy(classifier: Any, X: Any, y: Any) -> float:
    """Return the accuracy, which is the mean over classes too if they have equal sizes."""
    return float((classifier.predict(X) == y).mean())
