"""Distances from a few rows to many, beside the obvious way to compute them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import kernels
from dkvb.kernels.distances import DEPTH, Panels


@given(st.integers(1, 9), st.integers(1, 150), st.integers(1, 2 * DEPTH + 3), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_distances_are_those_of_float64(n, many, width, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (n, many))
    found, lowest = Panels.of(b).squared_distances(a)
    expected = np.square(a.astype(float)[:, None] - b.astype(float)).sum(axis=2)
    assert found.shape == (n, many)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * width)
    assert np.array_equal(lowest, found.min(axis=1))


@pytest.mark.parametrize("n", [1, 5])
def test_a_row_has_the_same_distances_in_any_batch(n):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(rows, 70)).astype(np.float32) for rows in (n, 90))
    panels = Panels.of(b)
    whole, _ = panels.squared_distances(a)
    alone = np.concatenate([panels.squared_distances(row[None])[0] for row in a])
    assert np.array_equal(whole, alone)
    assert float(panels.squared_distances(b)[1].max()) < 1e-3  # never below zero, near it
    assert float(panels.squared_distances(b)[0].min()) >= 0


@given(
    st.integers(1, 9),
    st.integers(1, 1200),
    st.integers(1, 40),
    st.integers(1, 20),
    st.floats(1e-4, 10),
    st.integers(0, 2**31),
)
@settings(max_examples=25, deadline=None)
def test_weighted_sums_of_a_kernel_are_those_of_float64(n, many, width, columns, gamma, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (n, many))
    weights = rng.normal(size=(many, columns))
    panels = Panels.of(b)
    found, lowest = panels.rbf_sums(a, gamma, weights)
    squared, nearest = panels.squared_distances(a)
    expected = np.exp(-gamma * squared.astype(float)) @ weights
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    assert np.array_equal(lowest, nearest)


def test_sums_are_the_same_in_any_batch_and_with_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(rows, 70)) for rows in (5, 3000))  # float64 is rounded
    weights, panels = rng.normal(size=(3000, 9)), Panels.of(b)
    whole, _ = panels.rbf_sums(a, 0.01, weights)
    alone = np.concatenate([panels.rbf_sums(row[None], 0.01, weights)[0] for row in a])
    assert np.array_equal(whole, alone)
    for threads in (1, 3):
        monkeypatch.setattr(kernels, "threads", threads)
        assert np.array_equal(panels.rbf_sums(a, 0.01, weights)[0], whole)
