"""Distances from a few rows to many, beside the obvious way to compute them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import kernels
from dkvb.kernels.distances import DEPTH, Panels


@given(st.integers(1, 9), st.integers(1, 150), st.integers(1, 2 * DEPTH + 3), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_distances_are_those_of_float64(n, many, width, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn((rows, width), generator=generator) for rows in (n, many))
    found, lowest = Panels.of(b).squared_distances(a)
    expected = (a.double()[:, None] - b.double()).square().sum(dim=2)
    assert found.shape == (n, many)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5 * width)
    assert torch.equal(lowest, found.amin(dim=1))


@pytest.mark.parametrize("n", [1, 5])
def test_a_row_has_the_same_distances_in_any_batch(n):
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn((rows, 70), generator=generator) for rows in (n, 90))
    panels = Panels.of(b)
    whole, _ = panels.squared_distances(a)
    alone = torch.cat([panels.squared_distances(row[None])[0] for row in a])
    assert torch.equal(whole, alone)
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
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn((rows, width), generator=generator) for rows in (n, many))
    weights = torch.randn((many, columns), dtype=torch.float64, generator=generator)
    panels = Panels.of(b)
    found, lowest = panels.rbf_sums(a, gamma, weights)
    squared, nearest = panels.squared_distances(a)
    expected = torch.exp(-gamma * squared.double()) @ weights
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert torch.equal(lowest, nearest)


def test_sums_are_the_same_in_any_batch_and_with_any_number_of_threads(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn((rows, 70), generator=generator) for rows in (5, 3000))
    weights, panels = torch.randn((3000, 9), dtype=torch.float64), Panels.of(b)
    whole, _ = panels.rbf_sums(a, 0.01, weights)
    alone = torch.cat([panels.rbf_sums(row[None], 0.01, weights)[0] for row in a])
    assert torch.equal(whole, alone)
    for threads in (1, 3):
        monkeypatch.setattr(kernels, "threads", threads)
        assert torch.equal(panels.rbf_sums(a, 0.01, weights)[0], whole)
