"""A step of SGD taken apart: the same as whole, and in 16 bits right on average."""

import pytest
import torch

from dkvb.kernels.sgd import cpu, descend, oracle, pool, push, step

# n, C, K, Y, batch size: classes 2 to 1000, books around the size of a block, one of everything
SHAPES = [
    (1, 1, 1, 2, 1),
    (107, 37, 11, 10, 16),
    (50, 16, 4, 16, 50),
    (20, 3, 6, 1000, 7),
    (64, 33, 300, 3, 64),
]
HALVES = [torch.bfloat16, torch.float16]


def problem(n, C, K, Y):
    torch.manual_seed(n + Y)
    codes = torch.randint(K, (n, C), dtype=torch.int32)
    orders = torch.stack([torch.randperm(n) for _ in range(2)])
    return 0.5 * torch.randn(C, K, Y), codes, torch.randint(Y, (n,)), orders


def in_steps(values, codes, y, orders, size, lr, backend=None):
    C = values.shape[0]
    batches = [rows for order in orders for rows in order.split(size)]
    for seed, rows in enumerate(batches):
        change = step(pool(values, codes[rows], backend), y[rows], C, lr, 0.1)
        push(values, codes[rows], change, seed, backend)
    return values


@pytest.mark.parametrize("backend", ["cpu", "oracle"])
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_descend_taken_apart(backend, shape, monkeypatch):
    monkeypatch.setattr(oracle, "ELEMENTS", 3000)  # several groups of codebooks
    n, C, K, Y, size = shape
    values, codes, y, orders = problem(n, C, K, Y)
    lr = 0.7 * C  # large enough for every column to move
    expected = values.clone()
    descend(expected, codes, y, orders, size, lr, 0.1)
    in_steps(values, codes, y, orders, size, lr, backend)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("module", [cpu, oracle])
def test_parts_of_the_codebooks_add_up(module):
    values, codes, _, _ = problem(30, 37, 11, 10)
    whole = module.pool(values, codes)
    expected = values[torch.arange(37), codes.long()].sum(dim=1)
    torch.testing.assert_close(whole, expected, rtol=1e-5, atol=1e-5)
    parts = [slice(0, 5), slice(5, 30), slice(30, 37)]
    summed = sum(module.pool(values[part], codes[:, part]) for part in parts)
    torch.testing.assert_close(whole, summed, rtol=1e-5, atol=1e-5)
    apart = values.clone()
    module.push(values, codes, whole)
    for part in parts:
        module.push(apart[part], codes[:, part], whole)
    assert torch.equal(values, apart)


@pytest.mark.parametrize("module", [cpu, oracle])
def test_values_that_were_not_read_stay_bit_for_bit(module):
    values, codes, _, _ = problem(20, 5, 30, 10)
    before = values.clone()
    module.push(values, codes.to(torch.uint16), torch.ones(20, 10))
    read = torch.zeros(5, 30, dtype=torch.bool)
    read[torch.arange(5), codes.long()] = True
    assert torch.equal(values[~read], before[~read])
    assert (values[read] != before[read]).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_sixteen_bits_follow_float32(dtype):
    values, codes, y, orders = problem(107, 37, 11, 10)
    exact = in_steps(values.clone(), codes, y, orders, 16, 2.0)
    stored = in_steps(values.to(dtype), codes, y, orders, 16, 2.0)
    assert stored.dtype == dtype
    gap = 2.0 ** -(7 if dtype == torch.bfloat16 else 10)  # from 1 to the next number
    assert (stored.float() - exact).abs().max() < 8 * gap
    moved = (stored.float() - exact).mean().abs()
    assert moved < 0.1 * gap


@pytest.mark.parametrize("start", [1.0, -1.0, 0.999, 3e-6])
@pytest.mark.parametrize("dtype", HALVES)
def test_steps_too_small_for_sixteen_bits_are_not_lost(dtype, start):
    torch.set_num_threads(1)  # steps this small gain nothing from a second
    values = torch.full((1, 1, 4000), start, dtype=dtype)
    begun = values.float().mean()
    codes, change = torch.zeros(1, 1, dtype=torch.int32), 1e-4 * abs(start)
    for seed in range(50):  # rounded to the nearest, not one of them would count
        push(values, codes, torch.full((1, 4000), change), seed)
    assert values.float().mean() - begun == pytest.approx(50 * change, rel=0.15)
    assert values.unique().numel() > 1


def test_zero_stays_zero():
    values = torch.zeros((1, 2, 3), dtype=torch.bfloat16)
    push(values, torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 3))
    assert not values.any()


def test_what_points_outside_is_refused():
    values, codes, _, _ = problem(20, 5, 30, 10)
    with pytest.raises(ValueError, match="codes: expected 0 to 29"):
        cpu.pool(values, codes + 30)
    with pytest.raises(ValueError, match="codes: expected 0 to 29"):
        cpu.push(values, codes + 30, torch.zeros(20, 10))
    with pytest.raises(ValueError, match="values: expected a contiguous tensor"):
        cpu.push(values.transpose(0, 1), codes, torch.zeros(20, 10))
