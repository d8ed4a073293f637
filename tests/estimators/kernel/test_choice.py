"""The choice among settings: accuracy first, then log loss among those taken for equal."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut as Splits
from sklearn.model_selection import cross_val_predict

from dkvb.estimators.kernel.ridge import (
    LAMBDAS,
    LeaveOneOut,
    class_factors,
    select_best,
    try_lambdas,
)


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
    targets = np.eye(3)[label]
    kernel = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
    oracle = KernelRidge(alpha=noise, kernel="precomputed")
    left_out = torch.from_numpy(cross_val_predict(oracle, kernel, targets, cv=Splits()))
    counts = torch.bincount(torch.from_numpy(label))
    scores = left_out * class_factors(counts)
    right = (scores.argmax(dim=1).numpy() == label).astype(float)
    balanced = np.mean([right[label == c].mean() for c in range(3)])
    losses = []
    for t in (3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0):
        logs = (scores * t).log_softmax(dim=1)[torch.arange(40), torch.from_numpy(label)].numpy()
        losses.append(-np.mean([logs[label == c].mean() for c in range(3)]))
    found, solved = try_lambdas(
        torch.from_numpy(kernel),
        torch.from_numpy(targets),
        torch.ones(40, dtype=torch.float64),
        0.1,
    )
    assert set(found) == set(LAMBDAS)  # of few rows all are tried
    best = select_best(found, 40) * np.eye(40)
    assert np.allclose(solved.alpha, np.linalg.solve(kernel + best, targets))
    assert found[noise].accuracy == pytest.approx(balanced)
    assert found[noise].log_loss == pytest.approx(min(losses))
