"""The regressor: scikit-learn's checks, and the sums behind it."""

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkvb.bottleneck import fit_keys
from dkvb.estimators.regressor import BottleneckRegressor

SMALL = {"n_codebooks": 12, "key_dim": 3}


def problem(n=500, width=6, seed=0):
    """Directions (n, m) and two smooth functions of them, far from mean 0 and variance 1."""
    X = np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.stack([1000 + 50 * unit[:, 0], unit[:, 1] * unit[:, 2] - 3], axis=1)


KEYS = fit_keys(
    problem(seed=5)[0], preset="paper", n_codebooks=12, n_pairs=12, key_dim=3, method="lloyd"
)


def order_of_keys(_):
    """That weights repeat rows is held, with keys given, by a test below."""
    order = "keys that are fitted to the rows depend on their order, which this check changes"
    return {"check_sample_weight_equivalence_on_dense_data": order}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([BottleneckRegressor(SMALL)], expected_failed_checks=order_of_keys)
def test_scikit_learn_check(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it, scikit-learn skips a check
    check(estimator)


def test_weights_repeat_rows():
    X, y = problem(n=60)
    weights = np.arange(60) % 3
    weighted = BottleneckRegressor(KEYS).fit(X, y, sample_weight=weights)
    repeated = BottleneckRegressor(KEYS).fit(np.repeat(X, weights, 0), np.repeat(y, weights, 0))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    with pytest.raises(ValueError, match="sample_weight: expected whole numbers"):
        weighted.partial_fit(X, y, sample_weight=np.full(60, 0.5))


def test_learns_numbers_of_any_mean_and_scale():
    X, y = problem()
    model = BottleneckRegressor(SMALL).fit(X[:400], y[:400])
    found = model.predict(X[400:])
    assert found.shape == (100, 2)
    residual = ((found - y[400:]) ** 2).mean(axis=0) / y[400:].var(axis=0)
    assert (residual < [0.1, 0.4]).all()
    one = BottleneckRegressor(SMALL).fit(X[:400], y[:400, 0])
    assert one.predict(X[400:]).shape == (100,)
    assert one.score(X[400:], y[400:, 0]) > 0.9


def test_any_order_and_what_was_forgotten_give_the_same_numbers_to_rounding(rng):
    X, y = problem()
    order = rng.permutation(len(X))
    parts = BottleneckRegressor(KEYS)
    for rows in np.split(order, [1, 30, 200]):
        parts.partial_fit(X[rows], y[rows])
    whole = BottleneckRegressor(KEYS).fit(X, y)
    assert np.allclose(parts.predict(X), whole.predict(X), rtol=1e-7)
    parts.forget_samples(X[:100], y[:100])
    never = BottleneckRegressor(KEYS).fit(X[100:], y[100:])
    assert np.allclose(parts.predict(X), never.predict(X), rtol=1e-7)


def test_constant_targets_and_single_rows():
    X, _ = problem(50)
    assert np.allclose(BottleneckRegressor(KEYS).fit(X, np.full(50, 7.0)).predict(X), 7.0)
    assert np.allclose(BottleneckRegressor(KEYS).fit(X[:1], [2.5]).predict(X[:1]), 2.5)


def test_bad_input_changes_nothing():
    X, y = problem(60)
    model = BottleneckRegressor(KEYS).fit(X, y)
    before = model.predict(X)
    for rows, targets, says in (
        (X, y[:, 0], "expected 2 numbers"),
        (X[:, :3], y, "features"),
        (np.where(X > 0, np.nan, X), y, "NaN"),
    ):
        with pytest.raises(ValueError, match=says):
            model.partial_fit(rows, targets)
        assert np.array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="width 6"):
        BottleneckRegressor(KEYS).fit(X[:, :3], y)
    with pytest.raises(TypeError, match="keys: expected a Keys"):
        BottleneckRegressor(keys=3).fit(X, y)
    with pytest.raises(ValueError, match="temperature"):
        BottleneckRegressor(KEYS, read_temperature=0).fit(X, y)


def test_clones_share_keys():
    X, y = problem(60)
    model = BottleneckRegressor(KEYS, read_temperature=0.5).fit(X, y)
    assert model._assignment.keys is KEYS
    assert model._assignment.temperature == 0.5
    assert torch.equal(model._sums.total[-1], torch.tensor(60.0).double())
