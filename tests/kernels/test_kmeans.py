"""Statistics of keys and classes: the compiled versions against the obvious ones."""

import pytest
import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels import kmeans as accumulate
from dkvb.kernels.kmeans import cpu, oracle

# n, g, K, d, batch size
SHAPES = [(1, 1, 1, 1, 1), (107, 3, 37, 5, 16), (61, 2, 130, 14, 61), (40, 1, 7, 96, 64)]


def start(n: int, g: int, K: int, d: int) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(n + K)
    heads = torch.randn(n, g, d)
    keys = torch.randn(g, K, d)
    return heads, [keys, torch.ones(g, K), keys.clone()]


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_ema_equals_the_oracle(shape, reset):
    n, g, K, d, batch_size = shape
    heads, ours = start(n, g, K, d)
    theirs = [tensor.clone() for tensor in ours]
    orders = torch.stack([torch.randperm(n) for _ in range(4)])
    # A threshold that many keys fall below, again and again.
    settings = (orders, batch_size, 0.7, 0.3, 11, 5, 2, reset)
    cpu.ema(heads, *ours, *settings)
    oracle.ema(heads, *theirs, *settings)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("module", [cpu, oracle])
def test_expired_keys_become_distinct_rows_in_hashed_order_and_the_rest_wait(module):
    heads, (keys, counts, sums) = start(n=5, g=1, K=9, d=2)
    counts[:] = 0
    module.ema(heads, keys, counts, sums, torch.arange(5), 5, 0.9, 100.0, 3, 4, 7, True)
    drawn = torch.argsort(bits(3, 4, 7, torch.arange(5)), stable=True)
    assert torch.equal(keys[0, :5], heads[drawn, 0])
    assert torch.equal(sums[0, :5], keys[0, :5])
    assert torch.equal(counts[0, :5], torch.ones(5))
    assert not torch.isin(keys[0, 5:], heads).any()


@pytest.mark.parametrize("module", [cpu, oracle])
def test_without_reset_every_expired_key_is_drawn_and_its_averages_stay(module):
    heads, (keys, counts, sums) = start(n=5, g=1, K=9, d=2)
    before = sums.clone()
    module.ema(heads, keys, counts, sums, torch.arange(5), 5, 1.0, 100.0, 3, 4, 7, False)
    assert torch.equal(keys[0], heads[bits(3, 4, 7, torch.arange(9)) % 5, 0])
    assert torch.equal(sums, before)
    assert torch.equal(counts, torch.ones(1, 9))


@pytest.mark.parametrize("reset", [True, False])
def test_ema_in_pieces_is_ema_at_once(reset):
    heads, whole = start(n=50, g=4, K=23, d=3)
    pieces = [tensor.clone() for tensor in whole]
    orders = torch.stack([torch.randperm(50) for _ in range(2)])
    cpu.ema(heads, *whole, orders, 16, 0.8, 0.2, 1, 0, 0, reset)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for book in range(4):
        part = [tensor[book : book + 1] for tensor in pieces]
        for epoch in range(2):  # 4 batches each, the last one of two rows
            cpu.ema(heads[:, [book]], *part, orders[epoch], 16, 0.8, 0.2, 1, book, 4 * epoch, reset)
    torch.set_num_threads(threads)
    for mine, expected in zip(pieces, whole, strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pass_of_lloyd_equals_the_oracle(shape):
    n, g, K, d, _ = shape
    heads, (keys, _, _) = start(n, g, K, d)
    ours, theirs = cpu.assign_sums(heads, keys), oracle.assign_sums(heads, keys)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    torch.testing.assert_close(ours[2], theirs[2])
    torch.testing.assert_close(ours[3], theirs[3])
    assert ours[2].dtype == ours[3].dtype == torch.float64


def test_dispatch_reaches_the_same_functions():
    heads, ours = start(n=20, g=2, K=6, d=3)
    theirs = [tensor.clone() for tensor in ours]
    accumulate.ema(heads, *ours, torch.arange(20), 8, 0.9, 0.1, 0)
    accumulate.ema(heads, *theirs, torch.arange(20), 8, 0.9, 0.1, 0, backend="oracle")
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-4)
    sums = accumulate.assign_sums(heads, ours[0])[2]
    torch.testing.assert_close(sums.sum(1), heads.double().sum(0))
