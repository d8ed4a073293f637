"""The inverse of a kernel matrix, and what came and went since, against obvious computations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.memory.choose import solved, system
from dkvb.memory.inverse import Inverse, NotPositiveDefinite, cholesky
from dkvb.memory.points import Points


def matrix(n, seed=0):
    """A kernel matrix (n, n) with its noise."""
    z = np.random.default_rng(seed).normal(size=(n, 3))
    return np.exp(-((z[:, None] - z[None]) ** 2).sum(-1)) + 0.2 * np.eye(n)


def inverse_of(a):
    lower = cholesky(np.asfortranarray(a))
    return Inverse.of(lower, np.diag(np.linalg.inv(a)).copy())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_whatever_came_and_went_the_inverse_is_that_of_what_is_left(data):
    n = data.draw(st.integers(3, 8))
    a, alive = matrix(30), list(range(n))
    inverse, all_points = inverse_of(a[:n, :n]), list(range(n))
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()) or len(alive) < 3:
            t = data.draw(st.integers(1, 3))
            new = list(range(len(all_points), len(all_points) + t))
            cross = a[np.ix_(all_points, new)].copy()
            cross[[i for i in all_points if i not in alive]] = 0  # of what went nothing is left
            inverse, _, _ = inverse.added(cross, a[np.ix_(new, new)])
            all_points, alive = all_points + new, alive + new
        else:
            gone = data.draw(st.lists(st.sampled_from(alive), min_size=1, max_size=2, unique=True))
            inverse, _ = inverse.removed(np.array(gone))
            alive = [one for one in alive if one not in gone]
    b = np.zeros((len(all_points), 2))
    b[alive] = np.random.default_rng(1).normal(size=(len(alive), 2))
    expected = np.linalg.inv(a[np.ix_(alive, alive)])
    np.testing.assert_allclose(inverse.solve(b)[alive], expected @ b[alive], atol=1e-7)
    np.testing.assert_allclose(inverse.diagonal[alive], np.diag(expected), atol=1e-7)


def test_values_that_stay_are_those_of_the_points_that_stay():
    a, y = matrix(12), np.random.default_rng(0).normal(size=(12, 2))
    gone, rest = np.array([2, 7]), np.setdiff1d(np.arange(12), [2, 7])
    values = np.linalg.solve(a, y)
    _, columns = inverse_of(a).removed(gone)
    later = values - columns @ values[gone]
    np.testing.assert_allclose(later[gone], 0, atol=1e-10)
    expected = np.linalg.solve(a[np.ix_(rest, rest)], y[rest])
    np.testing.assert_allclose(later[rest], expected, atol=1e-10)


def test_two_successors_of_one_inverse_do_not_disturb_each_other():
    a = matrix(6)
    first = inverse_of(a[:4, :4])
    one, _, _ = first.added(a[:4, 4:5], a[4:5, 4:5])
    same = one.solve(np.ones((5, 1)))
    other, _, _ = first.added(a[:4, 5:6], a[5:6, 5:6])
    np.testing.assert_array_equal(one.solve(np.ones((5, 1))), same)
    which = np.array([0, 1, 2, 3, 5])
    expected = np.linalg.solve(a[np.ix_(which, which)], np.ones((5, 1)))
    np.testing.assert_allclose(other.solve(np.ones((5, 1))), expected, atol=1e-10)


def test_leaving_one_out_is_what_the_others_predict():
    rng = np.random.default_rng(0)
    z, targets = rng.normal(size=(40, 5)).astype(np.float32), rng.normal(size=(40, 2))
    points = Points(z, np.zeros(40), np.ones(40), np.zeros(40, np.int64))
    kernel = system(points, 0.3, 0.2)
    values, _, diagonal, _ = solved(cholesky(kernel.copy(order="F")), targets)
    whole = np.tril(kernel) + np.tril(kernel, -1).T
    for i in range(40):
        others = np.arange(40) != i
        apart = np.linalg.solve(whole[np.ix_(others, others)], targets[others])
        left_out = targets[i] - values[i] / diagonal[i]
        np.testing.assert_allclose(left_out, whole[i, others] @ apart, atol=1e-9)


def test_a_matrix_without_a_factor_is_an_error():
    with pytest.raises(NotPositiveDefinite):
        cholesky(np.asfortranarray(-np.eye(3)))
