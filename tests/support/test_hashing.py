"""Random numbers that are functions of counters."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkvb._support.hashing import bits, content_hash, scalar_bits
from dkvb.kernels import hashing as of_tensors
from dkvb.kernels.hashing import epoch_order, epoch_orders

MASK = (1 << 64) - 1
counters = st.integers(0, 2**63 - 1)

STORED_BITS = [5105604414344456748, 4904400445128142947, 6096412770507382270]
STORED_HASHES = {
    "float32": [2163945335499769027, 2742732945922637380, 94901032839399106],
    "float64": [5978723438759524884, 583945750837220165, 4523252688354376838],
}
STORED_ORDER = [7, 2, 3, 6, 1, 4, 5, 8, 0]


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
    assert bits(seed, a, b, c) == expected
    assert int(bits(seed, a, b, np.array([c, 0]))[0]) == expected
    assert int(bits(seed, np.array([a]), b, np.int64(c))[0]) == expected
    assert int(bits(seed, a, b, torch.tensor([c, 0]))[0]) == expected
    assert int(bits(seed, torch.tensor([a]), b, c)[0]) == expected


def test_bits_and_hashes_stay_what_they_are():
    # Files hold hashes, and say which keys and seeds a model was learned with.
    assert bits(7, 1, 2, np.arange(3) << 40).tolist() == STORED_BITS
    assert bits(7, 1, 2, torch.arange(3) << 40).tolist() == STORED_BITS
    x = (np.arange(12, dtype=np.float32) - 3).reshape(3, 4) / 7
    for dtype, stored in STORED_HASHES.items():
        assert content_hash(x.astype(dtype)).tolist() == stored
        assert of_tensors.content_hash(torch.from_numpy(x.astype(dtype))).tolist() == stored
    assert epoch_order(9, 5, 3).tolist() == STORED_ORDER


def test_the_compiled_version_gives_the_same_bits():
    numba = pytest.importorskip("numba")
    compiled = numba.njit(scalar_bits)
    rng = np.random.default_rng(0)
    for seed, a, b, c in rng.integers(0, 2**63, size=(50, 4), dtype=np.int64):
        found = compiled(np.uint64(seed), int(a), int(b), int(c))
        assert found == splitmix(int(seed), int(a), int(b), int(c))


def test_bits_broadcast():
    whole = bits(3, np.arange(4)[:, None], 5, np.arange(6, dtype=np.int32))
    assert whole.shape == (4, 6)
    assert all(int(whole[i, j]) == bits(3, i, 5, j) for i in range(4) for j in range(6))
    assert len(np.unique(whole)) == 24


def test_bits_are_even():
    numbers = bits(0, 1, 2, np.arange(20_000)) / 2.0**63
    assert 0 <= numbers.min() < 1e-3
    assert 0.999 < numbers.max() < 1
    assert abs(float(numbers.mean()) - 0.5) < 0.01
    assert abs(float((numbers < 0.1).mean()) - 0.1) < 0.01


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


def test_a_row_keeps_its_hash_in_any_company(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 7)).astype(np.float32)
    whole = content_hash(x)
    parts = [content_hash(x[i : i + 13]) for i in range(0, 500, 13)]
    assert np.array_equal(np.concatenate(parts), whole)
    order = rng.permutation(500)
    assert np.array_equal(content_hash(x[order]), whole[order])
    assert np.array_equal(content_hash(np.asfortranarray(x)), whole)
    assert np.array_equal(content_hash(x[::-1]), whole[::-1])
    monkeypatch.setattr("dkvb._support.hashing._CHUNK", 5)  # fewer numbers than a row has
    assert np.array_equal(content_hash(x), whole)
    assert len(np.unique(whole)) == 500
    assert (whole >= 0).all()
    assert 0.05 < float((whole % 10 == 0).mean()) < 0.15


def test_a_hash_sees_content_alone_and_all_of_it():
    rows = [[0.0, 1.0, 2.0], [-0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [0.0, 1.0, 2.0000002]]
    first, zero, swapped, near = content_hash(np.array(rows, dtype=np.float32))
    assert first == zero
    assert first not in (swapped, near)
    assert len(content_hash(np.zeros((0, 3), np.float32))) == 0
