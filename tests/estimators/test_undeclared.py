"""Classes that nobody declared, learned by gradient descent."""

import numpy as np
import pytest

from dkvb import BottleneckClassifier, fit_keys, rules
from dkvb.estimators.registry import load_classifier


@pytest.mark.parametrize("at_once", [1, 2])
def test_sgd_learns_undeclared_classes_as_well_as_declared_ones(at_once, tmp_path):
    """A column that started at zero would win wherever the others have been pushed back."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 8))
    y = np.repeat(np.arange(6), 60)
    X = (centres[y] + rng.normal(scale=0.8, size=(len(y), 8))).astype(np.float32)
    keys = fit_keys(X, preset="paper", n_codebooks=16, n_pairs=24, key_dim=3, epochs=2)

    def learned(**declared):
        model = BottleneckClassifier(keys, rule=rules.SGD(epochs=20))
        for first in range(0, 6, at_once):
            rows = (y >= first) & (y < first + at_once)
            model.partial_fit(X[rows], y[rows], **declared)
            model.save(tmp_path / "model")  # what stands for classes to come is in the file
            model = load_classifier(tmp_path / "model")
        return model

    undeclared, declared = learned(), learned(classes=np.arange(6))
    assert declared.score(X, y) > 0.8
    assert abs(undeclared.score(X, y) - declared.score(X, y)) < 0.02
    assert undeclared.predict_proba(X).shape == (len(y), 6)
    assert np.array_equal(undeclared.freeze().predict(X), undeclared.predict(X))
