"""Counting: exact, whatever the order, and reversible."""

import numpy as np
import pytest
import torch

from dkvb.rules.counts import posterior
from dkvb.rules.counts import state as counts

C, K, Y = 5, 7, 4


def problem(n=60, seed=0):
    rng = np.random.default_rng(seed)
    codes = torch.from_numpy(rng.integers(K, size=(n, C)).astype(np.int32))
    return codes, torch.from_numpy(rng.integers(Y, size=n))


def dense(codes, y):
    """n[c, k, y] by NumPy."""
    table = np.zeros((C, K, Y), np.int64)
    for c in range(C):
        np.add.at(table[c], (codes[:, c].numpy(), y.numpy()), 1)
    return table


def empty():
    return counts.grow(counts.start(C, K), Y)


def table_of(state):
    """A state as n[c, k, y]."""
    table = np.zeros((C, K, len(state.per_class)), np.int64)
    for tally in state.tallies:
        pair, column = tally.places // counts.CLASS_STRIDE, tally.places % counts.CLASS_STRIDE
        np.add.at(table.reshape(C * K, -1), (pair.numpy(), column.numpy()), tally.counts.numpy())
    return table


def same_bits(a, b):
    one, other = counts.canonical(a), counts.canonical(b)
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint16])
def test_counts_are_counts(dtype):
    codes, y = problem()
    state = counts.update(empty(), codes.to(dtype), y)
    assert np.array_equal(table_of(state), dense(codes, y))
    assert state.per_class.tolist() == np.bincount(y, minlength=Y).tolist()


def test_order_and_batches_leave_no_trace():
    codes, y = problem()
    whole = counts.update(empty(), codes, y)
    for seed, size in ((1, 1), (2, 7), (3, 59)):
        state = empty()
        order = torch.from_numpy(np.random.default_rng(seed).permutation(60))
        for rows in order.split(size):
            state = counts.update(state, codes[rows], y[rows])
        assert same_bits(state, whole)


def test_lists_stay_few():
    codes, y = problem(300)
    state = empty()
    for i in range(300):
        state = counts.update(state, codes[i : i + 1], y[i : i + 1])
    assert len(state.tallies) < 8
    lengths = [len(tally) for tally in state.tallies]
    assert lengths == sorted(lengths, reverse=True)


def test_merging_is_adding():
    codes, y = problem()
    whole = counts.update(empty(), codes, y)
    parts = [counts.update(empty(), codes[i::3], y[i::3]) for i in range(3)]
    for a, b, c in ((0, 1, 2), (2, 0, 1)):
        merged = counts.merge(counts.merge(parts[a], parts[b]), parts[c])
        assert same_bits(merged, whole)
    assert same_bits(counts.merge(whole, empty()), whole)
    assert same_bits(counts.merge(empty(), whole), whole)
    assert same_bits(counts.merge(empty(), empty()), empty())


def test_what_does_not_belong_together_is_not_merged():
    with pytest.raises(ValueError, match=r"second: expected .* \(5, 7, 4\); got \(5, 7, 1\)"):
        counts.merge(empty(), counts.grow(counts.start(C, K), 1))
    with pytest.raises(ValueError, match="second: expected"):
        counts.merge(empty(), counts.grow(counts.start(C, K + 1), Y))


def test_what_was_learned_can_be_taken_away():
    codes, y = problem()
    before = counts.update(empty(), codes[:40], y[:40])
    after = counts.update(before, codes[40:], y[40:])
    order = torch.randperm(20) + 40
    state = after
    for rows in order.split(3):
        state = counts.update(state, codes[rows], y[rows], sign=-1)
    assert same_bits(state, before)
    nothing = counts.update(state, codes[:40], y[:40], sign=-1)
    assert same_bits(nothing, empty())
    assert len(nothing.whole) == 0


def test_more_cannot_be_taken_than_there_is():
    codes, y = problem()
    codes[1:] %= K - 1
    codes[0] = K - 1  # pairs that no other row selects
    state = counts.update(empty(), codes[:40], y[:40])
    before = table_of(state)
    wrong_label = (y[:1] + 1) % Y
    twice = torch.zeros(40, dtype=torch.int64)
    with pytest.raises(ValueError, match="X, y: expected rows that were learned with these labels"):
        counts.update(state, codes[:1], wrong_label, sign=-1)
    with pytest.raises(ValueError, match="nothing was changed"):
        counts.update(state, codes[twice], y[twice], sign=-1)
    with pytest.raises(ValueError, match="expected rows that were learned"):
        counts.update(empty(), codes[:1], y[:1], sign=-1)
    assert np.array_equal(table_of(state), before)


def test_columns_move():
    codes, y = problem()
    state = counts.update(empty(), codes, y)
    table = dense(codes, y)
    forgotten = counts.map_classes(state, torch.tensor([0, -1, 1, 2]))
    assert np.array_equal(table_of(forgotten), table[:, :, [0, 2, 3]])
    assert forgotten.per_class.tolist() == state.per_class[[0, 2, 3]].tolist()
    joined = counts.map_classes(state, torch.tensor([1, 1, 0, 1]))
    expected = np.stack([table[:, :, 2], table[:, :, [0, 1, 3]].sum(2)], axis=2)
    assert np.array_equal(table_of(joined), expected)
    assert joined.per_class.sum() == 60
    wider = counts.map_classes(state, torch.tensor([5, 0, 2, 1]))
    assert np.array_equal(table_of(wider)[:, :, [5, 0, 2, 1]], table)
    assert not table_of(wider)[:, :, [3, 4]].any()
    nothing = counts.map_classes(state, torch.tensor([-1] * 4))
    assert len(nothing.per_class) == 0
    turned = torch.tensor([3, 2, 1, 0])
    back = counts.map_classes(counts.map_classes(state, turned), turned)
    assert same_bits(back, state)


def test_growing_changes_nothing_counted():
    codes, y = problem()
    state = counts.update(empty(), codes, y)
    grown = counts.grow(state, Y + 2)
    assert grown.per_class.tolist() == [*state.per_class.tolist(), 0, 0]
    later = counts.update(grown, codes[:1], torch.tensor([Y + 1]))
    assert later.per_class[Y + 1] == 1
    assert np.array_equal(table_of(later)[:, :, :Y], table_of(state))


@pytest.mark.parametrize("few_rows", [0, 64])  # read from one list, or from several
def test_votes_by_hand(few_rows, monkeypatch):
    monkeypatch.setattr(posterior, "FEW_ROWS", few_rows)
    monkeypatch.setattr(counts, "GROWTH", 1)  # keeps lists apart
    codes, y = problem()
    state = empty()
    for rows in torch.arange(60).split(25):
        state = counts.update(state, codes[rows], y[rows])
    assert len(state.tallies) > 1
    new, _ = problem(11, seed=1)
    table = dense(codes, y)
    votes = posterior.votes(state, new.to(torch.uint16)).numpy()
    np.testing.assert_allclose(votes, np.mean([table[c, new[:, c]] for c in range(C)], axis=0))


def test_reading_from_nothing():
    codes, _ = problem(3)
    assert not posterior.votes(empty(), codes).any()
