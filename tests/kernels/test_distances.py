"""Distances from a few rows to many, beside the obvious way to compute them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
