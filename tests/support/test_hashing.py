"""Random numbers that are functions of counters."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkvb._support.hashing import bits, content_hash, epoch_order, epoch_orders, scalar_bits

MASK = (1 << 64) - 1
counters = st.integers(0, 2**63 - 1)


def splitmix(seed: int, *counters: int) -> int:
    """SplitMix64's finaliser over the counters, in Python's own integers."""

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    state = mix((seed + golden) & MASK)
    for counter in counters:
        state = mix(((state ^ counter) + golden) & MASK)
    return state & (2**63 - 1)


@given(st.integers(0, MASK), counters, counters, counters)
def test_bits_are_those_of_splitmix(seed, a, b, c):
    expected = splitmix(seed, a, b, c)
    assert int(bits(seed, a, b, c)) == expected
    assert int(bits(seed, a, b, torch.tensor([c, 0]))[0]) == expected


def test_the_compiled_version_gives_the_same_bits():
    numba = pytest.importorskip("numba")
    compiled = numba.njit(scalar_bits)
    rng = np.random.default_rng(0)
    for seed, a, b, c in rng.integers(0, 2**63, size=(50, 4), dtype=np.int64):
        found = compiled(np.uint64(seed), int(a), int(b), int(c))
        assert found == splitmix(int(seed), int(a), int(b), int(c))


def test_bits_broadcast():
    whole = bits(3, torch.arange(4)[:, None], 5, torch.arange(6))
    assert whole.shape == (4, 6)
    assert all(int(whole[i, j]) == int(bits(3, i, 5, j)) for i in range(4) for j in range(6))
    assert len(whole.unique()) == 24


def test_bits_are_even():
    numbers = bits(0, 1, 2, torch.arange(20_000)).double() / 2.0**63
    assert 0 <= numbers.min() < 1e-3
    assert 0.999 < numbers.max() < 1
    assert abs(float(numbers.mean()) - 0.5) < 0.01
    assert abs(float((numbers < 0.1).double().mean()) - 0.1) < 0.01


@given(st.integers(1, 300), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_epoch_visits_every_row_once(n, seed, epoch):
    order = epoch_order(n, seed, epoch)
    assert torch.equal(order.sort().values, torch.arange(n))
    assert torch.equal(order, epoch_order(n, seed, epoch))


def test_epochs_and_seeds_differ():
    orders = [epoch_order(100, seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order.tolist()) for order in orders}) == 9


def test_orders_of_several_epochs_are_those_of_each():
    orders = epoch_orders(37, 5, first_epoch=3, epochs=4)
    assert torch.equal(orders, torch.stack([epoch_order(37, 5, 3 + i) for i in range(4)]))


def test_a_row_keeps_its_hash_in_any_company():
    torch.manual_seed(0)
    x = torch.randn(500, 7)
    whole = content_hash(x)
    assert torch.equal(torch.cat([content_hash(part) for part in x.split(13)]), whole)
    order = torch.randperm(500)
    assert torch.equal(content_hash(x[order]), whole[order])
    assert torch.equal(content_hash(x.t().contiguous().t()), whole)
    assert len(whole.unique()) == 500
    assert (whole >= 0).all()
    assert 0.05 < float((whole % 10 == 0).double().mean()) < 0.15


def test_a_hash_sees_content_alone_and_all_of_it():
    x = torch.tensor([[0.0, 1.0, 2.0]])
    assert content_hash(x) == content_hash(torch.tensor([[-0.0, 1.0, 2.0]]))
    assert content_hash(x) != content_hash(torch.tensor([[1.0, 0.0, 2.0]]))
    assert content_hash(x) != content_hash(torch.tensor([[0.0, 1.0, 2.0000002]]))
