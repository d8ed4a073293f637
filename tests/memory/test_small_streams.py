"""Few rows per class: at least as accurate as the nearest class mean, and nothing is forgotten."""

import numpy as np
import pytest

from dkvb import KernelClassifier
from dkvb.embedding.datasets.bundled import load
from dkvb.estimators.registry import make_classifier


def accuracies(method, data, per_class, draw):
    """Accuracy on test rows of five classes, before and after a sixth is learned."""
    X, y = load(data)
    X_test, y_test = load(data, "test")
    rng = np.random.default_rng(draw)
    classes = rng.permutation(np.unique(y))[:6]
    old = np.isin(y_test, classes[:5])
    chosen = {c: rng.permutation(np.flatnonzero(y == c))[:per_class] for c in classes}
    model = KernelClassifier() if method == "kernel" else make_classifier("prototypes")
    first = np.concatenate([chosen[c] for c in classes[:5]])
    found = []
    for rows in (first, chosen[classes[5]]):
        model.partial_fit(X[rows], y[rows])
        found.append(float(np.mean(model.predict(X_test[old]) == y_test[old])))
    return found


@pytest.mark.parametrize("data", ["cifar10", "banking77"])
@pytest.mark.parametrize(("per_class", "margin"), [(5, -0.01), (10, -0.005), (20, 0.0), (40, 0.0)])
def test_at_least_level_with_the_nearest_class_mean(data, per_class, margin):
    draws = 12 if per_class < 20 else 4
    kernel, mean = (
        np.mean([accuracies(method, data, per_class, draw) for draw in range(draws)], axis=0)
        for method in ("kernel", "prototypes")
    )
    assert kernel[0] - mean[0] >= margin
    assert kernel[1] - mean[1] >= margin
    assert kernel[0] - kernel[1] < 0.08  # six classes are harder than five
