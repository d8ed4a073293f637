"""Sorted lists of counts: every backend, against dictionaries."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkvb.kernels import tally
from dkvb.kernels.tally import COLUMNS

BACKENDS = ["oracle", "cpu"]
lists = st.dictionaries(st.integers(0, 6 * COLUMNS), st.integers(-3, 3).filter(bool), max_size=12)


def as_list(counts):
    places = torch.tensor(sorted(counts), dtype=torch.int64)
    return places, torch.tensor([counts[p] for p in sorted(counts)], dtype=torch.int32)


@pytest.mark.parametrize("backend", BACKENDS)
@given(first=lists, second=lists)
def test_joined_lists_are_sums_without_zeros(backend, first, second):
    sums = {p: first.get(p, 0) + second.get(p, 0) for p in first | second}
    places, counts = tally.join(as_list(first), as_list(second), backend)
    expected_places, expected_counts = as_list({p: n for p, n in sums.items() if n})
    assert torch.equal(places, expected_places)
    assert torch.equal(counts, expected_counts)
    assert counts.dtype == torch.int32


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize(("n", "C", "K", "Y"), [(1, 1, 1, 1), (13, 3, 5, 4), (40, 7, 2, 1)])
def test_rows_add_up_what_their_pairs_hold(backend, chunk, n, C, K, Y, monkeypatch, rng):
    monkeypatch.setattr("dkvb.kernels.tally.oracle.CHUNK_ELEMENTS", chunk)
    table = rng.integers(0, 3, size=(C * K, Y))
    pair, column = np.nonzero(table)
    places = torch.from_numpy(pair * COLUMNS + column)
    counts = torch.from_numpy(table[pair, column].astype(np.int32))
    bounds = torch.from_numpy(np.searchsorted(pair, np.arange(C * K + 1)))
    codes = torch.from_numpy(rng.integers(K, size=(n, C)) + np.arange(C) * K)
    worth = np.array([0, 5, -70])
    expected = worth[table][codes.numpy()].sum(axis=1)  # (n, Y)
    found = tally.pool(places, counts, bounds, codes, torch.from_numpy(worth), Y, backend)
    assert np.array_equal(found.numpy(), expected)
