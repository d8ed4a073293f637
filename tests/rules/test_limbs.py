"""Sums without an end: whole numbers in two limbs, against Python's integers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.kernels import counts as kernels
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.class_sums import ClassSums, by_class, in_limbs
from dkvb.rules.counts.sparse import SparseCounts, in_order
from dkvb.rules.least_squares import sums as sums_

M, Y = 5, 3


def of_class_sums(sums):
    high = torch.zeros_like(sums.low) if sums.high is None else sums.high
    pairs = zip(sums.low.flatten().tolist(), high.flatten().tolist(), strict=True)
    return [low + (1 << 62) * over for low, over in pairs]


def of_moments(moments):
    """Sums by name, as Python's integers."""
    found = {}
    for name in ("gram", "cross"):
        low, high = getattr(moments, name), getattr(moments, name + "_high")
        high = torch.zeros_like(low) if high is None else high
        pairs = zip(low.flatten().tolist(), high.flatten().tolist(), strict=True)
        found[name] = [int(a) + int(sums_.LIMB) * int(b) for a, b in pairs]
    return found


def identical(first, second):
    ours, theirs = first.tensors(), second.tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


@given(
    st.lists(st.integers(-(1 << 61), (1 << 61) - 1), min_size=6, max_size=6),
    st.integers(0, 12),
)
def test_class_sums(numbers, doublings):
    """Doubled until they pass int64, added in another order, and taken away again."""
    numbers[0] = (1 << 61) - 1
    one = ClassSums(torch.tensor(numbers).view(2, 3))
    assert in_limbs(one.low).high is None
    sums, times = one, 1
    for _ in range(doublings):
        sums, times = counts._sums(sums, sums), 2 * times
    assert of_class_sums(sums) == [times * number for number in numbers]
    assert (sums.high is None) == (doublings == 0)
    more = counts._sums(one, sums)
    other = counts._sums(sums, one)
    assert torch.equal(more.low, other.low)
    assert of_class_sums(more) == [(times + 1) * number for number in numbers]
    back = counts._sums(more, sums, sign=-1)
    assert torch.equal(back.low, one.low)
    assert back.high is None
    joined = of_class_sums(by_class(sums, torch.tensor([1, 1]), 2))
    assert joined == [0, 0, 0] + [times * (numbers[i] + numbers[i + 3]) for i in range(3)]
    assert of_class_sums(by_class(sums, torch.tensor([-1, 0]), 1)) == of_class_sums(sums)[3:]


@pytest.mark.parametrize("backend", ["oracle", "cpu"])
def test_counts_beyond_32_bits(backend):
    places, most = torch.tensor([3, 5]), (1 << 31) - 1
    counted = torch.tensor([most, 7], dtype=torch.int32)
    join = kernels.backend("cpu", backend).join
    _, both = join(places, counted, places, counted)
    assert both.dtype == torch.int64
    assert both.tolist() == [2 * most, 14]
    found, back = join(places, both, places, -counted)
    assert (back.dtype, back.tolist(), found.tolist()) == (torch.int32, [most, 7], [3, 5])
    wide = kernels.Bounded(places, both, torch.searchsorted(places, torch.tensor([0, 1 << 20])))
    pooled = kernels.backend("cpu", backend).pool(wide, torch.tensor([[0, 0]]), 6)
    assert pooled.tolist() == [[0, 0, 0, 4 * most, 0, 28]]
    again = in_order(torch.tensor([3, 3]), torch.tensor([most, most], dtype=torch.int32))
    assert again.counts.tolist() == [2 * most]
    assert isinstance(again, SparseCounts)


@settings(max_examples=25)
@given(st.data())
def test_sums_of_products(data):
    """Any order, split and merge give the same limbs, those of Python's integers."""
    sums_.LIMB, before = 2.0 ** data.draw(st.sampled_from([20, 33, 53])), sums_.LIMB
    try:
        _sums_of_products(data)
    finally:
        sums_.LIMB = before


def _sums_of_products(data):
    n, seed = data.draw(st.integers(2, 12)), data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    phi = rng.integers(0, 1 << 16, size=(n, M)) * rng.integers(0, 2, size=(n, M))
    y, held = rng.integers(Y, size=n), rng.integers(2, size=n) == 1
    rows = torch.from_numpy(phi).double(), torch.from_numpy(y), torch.from_numpy(held)

    def learned(*parts, state=None, sign=1):
        batches = [tuple(column[part] for column in rows) for part in parts]
        return sums_.update(state or sums_.empty(M, Y), batches, sign)

    order, cut = rng.permutation(n), int(rng.integers(n))
    every = learned(slice(None))
    assert identical(learned(*(order[i : i + 1] for i in range(n))), every)
    first, second = learned(order[:cut]), learned(order[cut:])
    assert identical(sums_.merge(first, second), every)
    assert identical(sums_.merge(second, first), every)
    assert identical(learned(order[cut:], state=every, sign=-1), first)
    for part, chosen in ((every.learned, ~held), (every.held, held)):
        own, exact = phi[chosen].astype(object), of_moments(part)
        gram = own.T @ own if len(own) else np.zeros((M, M), dtype=object)
        assert exact["gram"] == gram.flatten().tolist()
        cross = [sum(own[y[chosen] == c, i].tolist()) for i in range(M) for c in range(Y)]
        assert exact["cross"] == cross
        lowest, highest = -sums_.LIMB / 2, sums_.LIMB / 2
        assert ((part.gram >= lowest) & (part.gram < highest)).all()
        rounded = part.rounded()
        assert rounded.gram.tolist() == [float(number) for number in exact["gram"]]
    target = torch.tensor([1, 1, 1])
    joined = sums_.map_classes(every, target, 2)
    again = sums_.update(sums_.empty(M, 2), [(rows[0], torch.ones(n, dtype=torch.int64), rows[2])])
    assert identical(joined, again)
    assert identical(sums_.grow_classes(every, Y), every)
    grown = sums_.grow_classes(every, Y + 1)
    assert identical(sums_.map_classes(grown, torch.tensor([0, 1, 2, -1]), Y), every)
