"""Sorted lists of counts: every backend, against dictionaries."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkvb._support.hashing import bits
from dkvb.kernels import counts as tally
from dkvb.kernels.counts import CLASS_STRIDE, cpu, oracle

BACKENDS = ["oracle", "cpu"]
lists = st.dictionaries(
    st.integers(0, 6 * CLASS_STRIDE), st.integers(-3, 3).filter(bool), max_size=12
)


def as_list(counts):
    places = torch.tensor(sorted(counts), dtype=torch.int64)
    return places, torch.tensor([counts[p] for p in sorted(counts)], dtype=torch.int32)


@pytest.mark.parametrize("backend", BACKENDS)
@given(first=lists, second=lists)
def test_joined_lists_are_sums_without_zeros(backend, first, second):
    sums = {p: first.get(p, 0) + second.get(p, 0) for p in first | second}
    places, counts = tally.backend("cpu", backend).join(*as_list(first), *as_list(second))
    expected_places, expected_counts = as_list({p: n for p, n in sums.items() if n})
    assert torch.equal(places, expected_places)
    assert torch.equal(counts, expected_counts)
    assert counts.dtype == torch.int32


def bounded(table):
    """A table (pairs, Y) as a list with bounds."""
    pair, column = np.nonzero(table)
    places = torch.from_numpy(pair * CLASS_STRIDE + column)
    counts = torch.from_numpy(table[pair, column].astype(np.int32))
    bounds = torch.from_numpy(np.searchsorted(pair, np.arange(len(table) + 1)))
    return tally.Bounded(places, counts, bounds)


SHAPES = [(1, 1, 1, 1), (13, 3, 5, 4), (40, 17, 2, 1)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize(("n", "C", "K", "Y"), SHAPES)
def test_rows_add_up_what_their_pairs_hold(backend, chunk, n, C, K, Y, monkeypatch, rng):
    monkeypatch.setattr("dkvb.kernels.counts.oracle.CHUNK_ELEMENTS", chunk)
    table = rng.integers(0, 3, size=(C * K, Y))
    codes = torch.from_numpy(rng.integers(K, size=(n, C)) + np.arange(C) * K)
    found = tally.backend("cpu", backend).pool(bounded(table), codes, Y)
    assert np.array_equal(found.numpy(), table[codes.numpy()].sum(axis=1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
@pytest.mark.parametrize("R", [0, 2])
@pytest.mark.parametrize(("n", "C", "K", "Y"), SHAPES)
def test_logarithms_of_what_pairs_and_their_regions_hold(
    backend, chunk, R, n, C, K, Y, monkeypatch, rng
):
    monkeypatch.setattr("dkvb.kernels.counts.oracle.CHUNK_ELEMENTS", chunk)
    G = 3
    own, by_cluster = rng.integers(0, 3, size=(C * K, Y)), rng.integers(0, 4, size=(R * C * G, Y))
    pairs = rng.integers(K, size=(n, C)) + np.arange(C) * K
    cells = rng.integers(G, size=(R * C, K)) + np.arange(R * C)[:, None] * G
    cells = cells.reshape(R, C * K).astype(np.int32)
    shares, weights = rng.random(R * C * G), rng.random((1 + R, Y))
    constant = rng.random(Y) * 1e-20  # of which many together are beyond float64
    inside = constant + weights[0] * own[pairs]
    for r in range(R):
        cell = cells[r, pairs]
        inside = inside + weights[1 + r] * shares[cell][:, :, None] * by_cluster[cell]
    lists, pool_logs = (bounded(own), bounded(by_cluster)), tally.backend("cpu", backend).pool_logs
    arrays = [torch.from_numpy(a) for a in (pairs, cells, shares, weights, constant)]
    found = pool_logs(*lists, *arrays)
    np.testing.assert_allclose(found, np.log(inside).sum(axis=1), rtol=1e-12)
    known = tally.Known(torch.empty(C * K, Y).double(), torch.zeros(C * K).long())
    for _ in range(2):  # found, then read
        assert torch.equal(pool_logs(*lists, *arrays, known), found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [torch.uint16, torch.int32, torch.int64])
@pytest.mark.parametrize(("n", "C"), [(0, 3), (1, 1), (5000, 7)])
def test_hashes_of_codes_wrap_and_mix(backend, kind, n, C, rng):
    codes = rng.integers(1 << 16, size=(n, C))
    factors = rng.integers(-(1 << 63), 1 << 63, size=C, dtype=np.int64)
    hash_codes = tally.backend("cpu", backend).hash_codes
    found = hash_codes(torch.from_numpy(codes).to(kind), torch.from_numpy(factors))
    sums = [sum(map(int.__mul__, row, factors.tolist())) for row in codes.tolist()]
    wrapped = torch.tensor([(s + (1 << 63)) % (1 << 64) - (1 << 63) for s in sums]).long()
    assert torch.equal(found, bits(3, wrapped, 0, 0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cells", [0, 1000])  # sorted, or in a table
@pytest.mark.parametrize("chunk", [40, 1 << 20])  # a codebook or some rows at a time
@pytest.mark.parametrize("code_type", [torch.int32, torch.uint16])
def test_counts(backend, cells, chunk, code_type, monkeypatch):
    monkeypatch.setattr("dkvb.kernels.counts.cpu.CELLS_PER_ROW", cells)
    monkeypatch.setattr("dkvb.kernels.counts.cpu.CELLS", chunk)
    monkeypatch.setattr("dkvb.kernels.counts.oracle.CHUNK_ELEMENTS", chunk)
    torch.manual_seed(0)
    n, C, K, Y = 601, 37, 11, 5
    codes, class_index = torch.randint(K, (n, C)), torch.randint(3, (n,)) * 2
    table = torch.zeros(C, K, Y, dtype=torch.int64)
    for c in range(C):
        table[c].view(-1).index_add_(0, codes[:, c] * Y + class_index, torch.ones(n).long())
    count = tally.backend("cpu", backend).count
    places, counts = count(codes.to(code_type), class_index, K)
    assert counts.dtype == torch.int32
    assert bool((places[1:] > places[:-1]).all())
    found = table.view(C * K, Y)[places // CLASS_STRIDE, places % CLASS_STRIDE]
    assert torch.equal(found, counts.long())
    assert int(counts.sum()) == n * C
    assert all(len(part) == 0 for part in count(codes[:0].to(code_type), class_index[:0], K))


@pytest.mark.parametrize("code", [11, -1])
def test_codes_outside_the_table_are_refused(code):
    codes, class_index = torch.zeros(40, 2, dtype=torch.int32), torch.zeros(40, dtype=torch.int64)
    codes[2, 1] = code
    with pytest.raises(ValueError, match="codes: expected 0 to 10"):
        tally.backend("cpu", "cpu").count(codes, class_index, 11)


@pytest.mark.parametrize(("n", "width", "n_classes"), [(1, 1, 1), (7, 65, 20), (100, 13, 100)])
def test_scores_of_class_means_have_the_bits_of_the_oracle(n, width, n_classes):
    generator = torch.Generator().manual_seed(n)
    z = torch.randn(n, width, dtype=torch.float64, generator=generator)
    z[0, 0] = 1e12  # which is too large for the fixed point
    matrix = torch.randint(-(1 << 20), 1 << 20, (width, n_classes), generator=generator).double()
    offset = torch.randn(n_classes, dtype=torch.float64, generator=generator)
    how = (2.0**12, matrix, 0.37 * 2.0**-30, offset)
    found = cpu.mean_scores(z, *how)
    assert torch.equal(found, oracle.mean_scores(z, *how))
    assert torch.equal(found[-1:], cpu.mean_scores(z[-1:], *how))
