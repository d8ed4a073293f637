"""The compiled search against the obvious one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dkvb.kernels.nearest import cpu, oracle, rescore

# n, C, K, d: one of everything, primes, key dimensions 1 to 96, pairs around the size of a panel
SHAPES = [
    (1, 1, 1, 1),
    (1, 3, 64, 14),
    (7, 2, 65, 1),
    (257, 3, 31, 2),
    (13, 5, 127, 14),
    (5, 2, 300, 33),
    (3, 1, 1021, 96),
    (300, 1, 17, 131),
]


def bias_of(keys: Tensor) -> Tensor:
    return 0.5 * keys.square().sum(2)


def both(heads: Tensor, keys: Tensor, bias: Tensor, tolerance: Tensor, top: int = 1):
    expected = oracle.search(heads, oracle.prepare(keys, bias), tolerance, top)
    return cpu.search(heads, cpu.prepare(keys, bias), tolerance, top), expected


@pytest.fixture
def poisoned():
    """Fresh tensors hold NaN or the largest integer, so that an output left unwritten shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("top", [1, 2, 5])
def test_whole_numbers_give_the_oracles_codes_and_ties(shape, top):
    n, C, K, d = shape
    top = min(top, K)
    torch.manual_seed(n * K)
    # Small whole numbers: float32 is exact and ties are common.
    heads = torch.randint(-3, 4, (n, C, d)).float()
    keys = torch.randint(-3, 4, (C, K, d)).float()
    keys[:, K // 2 :] = keys[:, : K - K // 2].clone()
    for tolerance in (0.0, 1.0):
        slack = torch.full((n, C), tolerance)
        (codes, unsure), (expected, doubtful) = both(heads, keys, bias_of(keys), slack, top)
        assert codes.dtype == torch.int32
        assert torch.equal(codes, expected)
        assert torch.equal(unsure, doubtful)


@pytest.mark.parametrize("shape", SHAPES)
def test_codes_that_are_sure_are_right(shape):
    n, C, K, d = shape
    torch.manual_seed(1)
    heads, keys = torch.randn(n, C, d), torch.randn(C, K, d)
    slack = torch.full((n, C), 1e-6 * d)
    (codes, unsure), (expected, _) = both(heads, keys, bias_of(keys), slack)
    assert torch.equal(codes[~unsure], expected[~unsure])
    assert unsure.float().mean() < 0.01


def test_forbidden_keys_are_not_chosen():
    torch.manual_seed(2)
    n, C, K, d = 50, 4, 200, 3
    heads, keys = torch.randint(-9, 9, (n, C, d)).float(), torch.randint(-9, 9, (C, K, d)).float()
    bias = bias_of(keys)
    bias[0, torch.rand(K) < 0.9] = torch.inf
    bias[1, :199] = torch.inf  # one is left, the last
    bias[2, 3:] = torch.inf  # three are left
    (codes, unsure), (expected, doubtful) = both(heads, keys, bias, torch.zeros(n, C))
    assert torch.equal(codes, expected)
    assert torch.equal(unsure, doubtful)
    assert (codes[:, 1] == 199).all()
    assert not unsure[:, 1].any()

    (codes, unsure), (_, doubtful) = both(heads, keys, bias, torch.zeros(n, C), top=4)
    assert torch.equal(unsure, doubtful)
    assert unsure[:, 1:3].all()  # fewer than four may be chosen
    assert ((codes >= 0) & (codes < K)).all()


def test_all_keys_can_be_asked_for():
    torch.manual_seed(3)
    heads, keys = torch.randn(4, 2, 3), torch.randn(2, 70, 3)
    (codes, _), (expected, _) = both(heads, keys, bias_of(keys), torch.zeros(4, 2), top=70)
    assert torch.equal(codes, expected)
    with pytest.raises(ValueError, match="top: expected 1 to the number of pairs, 70; got 71"):
        both(heads, keys, bias_of(keys), torch.zeros(4, 2), top=71)


def test_strided_and_double_input():
    torch.manual_seed(4)
    heads, keys = torch.randn(3, 9, 5).double(), torch.randn(5, 3, 40).double()
    heads, keys = heads.permute(1, 0, 2), keys.permute(1, 2, 0)  # (9, 3, 5), (3, 40, 5)
    (codes, unsure), (expected, _) = both(heads, keys, bias_of(keys), torch.zeros(1).expand(9, 3))
    assert not unsure.any()
    assert torch.equal(codes, expected)


def test_any_batch_and_thread_count_gives_the_same():
    torch.manual_seed(5)
    heads, keys = torch.randn(530, 3, 6), torch.randn(3, 90, 6)
    prepared, slack = cpu.prepare(keys, bias_of(keys)), torch.full((530, 3), 1e-3)
    together = cpu.search(heads, prepared, slack, top=3)
    pieces = [(heads[i : i + 101], slack[i : i + 101]) for i in range(0, 530, 101)]
    apart = [cpu.search(part, prepared, limit, top=3) for part, limit in pieces]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = cpu.search(heads, prepared, slack, top=3)
    torch.set_num_threads(threads)
    for i in range(2):
        assert torch.equal(together[i], torch.cat([piece[i] for piece in apart]))
        assert torch.equal(together[i], alone[i])


@pytest.mark.parametrize("shape", SHAPES)
def test_codes_in_float64_and_the_lowest_two_scores(shape):
    n, C, K, d = shape
    torch.manual_seed(n + K)
    keys, heads = torch.randn(C, K, d), torch.randn(n, d, dtype=torch.float64)
    bias = bias_of(keys.double())
    books = torch.arange(n) % C
    codes, lowest = rescore.refine(heads, cpu.prepare(keys, bias), bias, books)
    scores = bias[books] - torch.einsum("rkd,rd->rk", keys[books].double(), heads)
    expected, order = scores.topk(min(2, K), dim=1, largest=False)
    assert torch.equal(codes.long(), order[:, 0])
    torch.testing.assert_close(lowest[:, : expected.shape[1]], expected, rtol=1e-12, atol=1e-12)
    assert K > 1 or lowest[:, 1].isinf().all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 20), size=st.floats(1e-4, 2.0), top=st.integers(1, 3))
def test_a_moved_head_never_has_other_keys_than_a_sure_one(seed, size, top):
    """The bound shrinks with the distance of the nearest key; every key within reach is tried."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(1, 90, 3, generator=generator)
    heads = torch.randn(200, 1, 3, generator=generator)
    heads[:80] = keys[0, torch.arange(80), None] + 0.05 * heads[:80]
    reach = keys.norm(dim=2).amax(dim=1)
    error = torch.full((200, 1), size)
    tolerance = 2 * reach * error + 1e-4
    prepared = cpu.prepare(keys, bias_of(keys))
    codes, unsure = cpu.search(heads, prepared, tolerance, top, error, reach)
    assert torch.equal(codes, cpu.search(heads, prepared, tolerance, top)[0])
    certain = torch.zeros(200, 1)
    directions = [key - heads for key in keys[0]]  # towards each key
    directions += list(torch.randn(20, 200, 1, 3, generator=generator))
    for direction in directions:
        step = 0.999 * size * direction / direction.norm(dim=2, keepdim=True).clamp(min=1e-12)
        moved = cpu.search(heads + step, prepared, certain, top)[0]
        assert torch.equal(moved[~unsure], codes[~unsure])


def test_near_keys_need_less_than_the_reach_of_all_keys():
    torch.manual_seed(0)
    keys, heads = torch.randn(1, 500, 14), torch.randn(1000, 1, 14)
    reach, error = keys.norm(dim=2).amax(dim=1), torch.full((1000, 1), 1e-3)
    tolerance, prepared = 2 * reach * error, cpu.prepare(keys, bias_of(keys))
    loose = cpu.search(heads, prepared, tolerance)[1]
    tight = cpu.search(heads, prepared, tolerance, 1, error, reach)[1]
    assert not bool((tight & ~loose).any())
    assert 0 < int(tight.sum()) < int(loose.sum())
