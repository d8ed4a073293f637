"""The choice among settings: accuracy first, then log loss among those taken for equal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut as Splits
from sklearn.model_selection import cross_val_predict

from dkvb import KernelClassifier, fit_keys
from dkvb.memory.choose import LAMBDAS, select_best, try_noises
from dkvb.memory.outputs import Classes, LeaveOneOut, class_factors
from dkvb.memory.points import Points


def test_a_higher_accuracy_wins_where_it_is_more_than_chance():
    tried = {"a": LeaveOneOut(0.9, 0.5), "b": LeaveOneOut(0.8, 0.1)}
    assert select_best(tried, 1000) == "a"


def test_the_lower_log_loss_wins_where_accuracies_are_as_good_as_equal():
    tried = {"a": LeaveOneOut(0.900, 0.5), "b": LeaveOneOut(0.897, 0.1)}
    assert select_best(tried, 1000) == "b"
    assert select_best(tried, 1_000_000) == "a"  # of so many examples 0.3 % is no chance


def test_a_problem_that_cannot_be_solved_is_never_chosen():
    tried = {"a": LeaveOneOut(0.0, math.inf), "b": LeaveOneOut(0.0, 3.0)}
    assert select_best(tried, 2) == "b"


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_leave_one_out_is_that_of_scikit_learn(noise):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    label = rng.integers(3, size=40)
    x[:, 0] += label
    x = x.astype(np.float32)
    targets = np.eye(3)[label]
    kernel = np.exp(-((x[:, None].astype(float) - x[None]) ** 2).sum(-1))
    oracle = KernelRidge(alpha=noise, kernel="precomputed")
    left_out = cross_val_predict(oracle, kernel, targets, cv=Splits())
    scores = left_out * class_factors(np.bincount(label).astype(float))
    right = (scores.argmax(axis=1) == label).astype(float)
    balanced = np.mean([right[label == c].mean() for c in range(3)])
    losses = []
    for t in (3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0):
        logs = log_softmax(scores * t, axis=1)[np.arange(40), label]
        losses.append(-np.mean([logs[label == c].mean() for c in range(3)]))
    points = Points(x, np.zeros(40), np.ones(40), label)
    found, solved = try_noises(points, 1.0, Classes(3), 0.1)
    assert set(found) == set(LAMBDAS)  # of few rows all are tried
    best = select_best(found, 40) * np.eye(40)
    assert np.allclose(solved.values, np.linalg.solve(kernel + best, targets))
    assert found[noise].accuracy == pytest.approx(balanced)
    assert found[noise].loss == pytest.approx(min(losses))


def test_sums_of_many_rows_are_not_chosen_for_by_leaving_cells_out():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=2000)
    X = np.maximum(3 * np.eye(3, 70)[y] + rng.normal(size=(2000, 70)), 0).astype(np.float32)
    keys = one_codebook(X)
    many = KernelClassifier("sums", keys=keys).fit(X, y)
    assert many.setting_["conditioning"] == "none"  # fewer cells than dimensions: no axes
    finer = KernelClassifier("sums", keys=one_codebook(X, 128)).fit(X, y)
    assert finer.single_row_share_ < 0.5
    assert (finer.setting_["conditioning"], finer.setting_["width"]) == ("1/8", 1.0)
    assert finer.score(X, y) > 0.9


def one_codebook(X, n_pairs=4):
    return fit_keys(X, n_codebooks=1, n_pairs=n_pairs, key_dim=8, method="lloyd", epochs=2)
