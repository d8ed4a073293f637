"""Rows kept for calibration: a bounded size, any order, and no trace of what was forgotten."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.rules.counts import sketch as module
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.sketch import BUCKETS, CELLS, Sketch, added, sketch_of

C, K = 3, 50
FACTORS = counts.hash_factors(C, torch.device("cpu"))


def rows(n, seed=0, n_classes=3, n_codes=K):
    rng = np.random.default_rng(seed)
    codes = torch.from_numpy(rng.integers(n_codes, size=(n, C)).astype(np.int32))
    return codes, torch.from_numpy(rng.integers(n_classes, size=n))


def made(codes, y):
    return sketch_of(codes, y, FACTORS)


def same(one, other):
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@settings(max_examples=30)
@given(st.data())
def test_any_order_split_and_merge(data):
    n = data.draw(st.integers(0, 60))
    module.BUCKETS = data.draw(st.sampled_from([1, 4, 256]))  # few: rows share cells
    try:
        codes, y = rows(n, data.draw(st.integers(0, 99)), n_codes=data.draw(st.integers(1, K)))
        whole = made(codes, y)
        order = torch.from_numpy(np.random.default_rng(n).permutation(n))
        cut = data.draw(st.integers(0, n))
        first, second = (made(codes[part], y[part]) for part in (order[:cut], order[cut:]))
        assert same(added([first, second]), whole)
        assert same(added([second, first]), whole)
        assert same(added([whole], gone=second), first)  # as if never learned
        target = torch.tensor([0, -1, 1])
        left = y != 1
        assert same(whole.by_class(target), made(codes[left], target[y[left]]))
        together = whole.by_class(torch.tensor([0, 0, 0]))
        assert same(together, made(codes, torch.zeros_like(y)))
    finally:
        module.BUCKETS = BUCKETS


def test_rows_that_were_not_there():
    codes, y = rows(40)
    whole = made(codes, y)
    for gone in (made(codes[:1], (y[:1] + 1) % 3), made(codes[[0] * 40], y[[0] * 40])):
        with pytest.raises(ValueError, match="expected rows that were learned"):
            added([whole], gone=gone)


def test_rows_come_back():
    """Those of cells with one row, or with the same row several times."""
    codes, y = rows(60)
    again = torch.arange(60).repeat_interleave(torch.arange(60) % 3 + 1)
    found, hashes = made(codes[again], y[again]).rows(K, FACTORS)
    there = {
        (tuple(c), int(k)): 1 + i % 3
        for i, (c, k) in enumerate(zip(codes.tolist(), y, strict=True))
    }
    back = zip(found.codes.tolist(), found.class_index.tolist(), found.times.tolist(), strict=True)
    assert all(there[tuple(c), k] == times for c, k, times in back)
    assert len(found.cells) > 50
    assert len(hashes) == len(found.cells)


@pytest.mark.parametrize("n", [3_000, 100_000])
def test_the_size_is_bounded_and_enough_rows_come_back(n):
    codes = torch.arange(n, dtype=torch.int32)[:, None] * torch.tensor(
        [1, 7, 11], dtype=torch.int32
    )
    whole = made(codes, torch.zeros(n, dtype=torch.int64))
    assert len(whole.cells) <= CELLS
    assert int(whole.times.sum()) == n
    found, _ = whole.rows(1 << 24, FACTORS)
    assert BUCKETS < len(found.cells) < 2 * BUCKETS
    assert (found.codes[:, 1:] == found.codes[:, :1] * torch.tensor([7, 11])).all()
    # One in two rows of those that come back has an even number: they are drawn by a hash.
    assert 0.4 < float((found.codes[:, 0] % 2).float().mean()) < 0.6


def test_states_sketch_what_waits(monkeypatch):
    """The same bits however many rows wait, in updates, merges and without rows again."""
    codes, y = rows(4_000)
    empty = counts.grow(counts.start(C, K), 3)
    expected = counts.canonical(counts.update(empty, codes, y))
    monkeypatch.setattr(counts, "PENDING", 20)
    parts = [counts.update(empty, codes[i::3], y[i::3]) for i in range(3)]
    assert all(part.sketch is not None for part in parts)
    merged = counts.merge(counts.merge(parts[2], parts[0]), parts[1])
    for name, tensor in counts.canonical(merged).items():
        assert torch.equal(tensor, expected[name]), name
    back = counts.update(merged, codes[1::3], y[1::3], sign=-1)
    fewer = counts.canonical(counts.merge(parts[0], parts[2]))
    for name, tensor in counts.canonical(back).items():
        assert torch.equal(tensor, fewer[name]), name


def test_a_hash_that_differs_is_no_row():
    """Cells whose sums look like those of one row are told apart by a second hash."""
    codes, y = rows(1)
    one = made(codes, y)
    doubled = Sketch(one.cells, one.times * 2, one.codes * 2, one.checks + 1)
    assert not len(doubled.rows(K, FACTORS)[0].cells)
