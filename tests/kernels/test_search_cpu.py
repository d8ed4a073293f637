"""The compiled search against the obvious one."""

import pytest
import torch
from torch import Tensor

from dkvb.kernels.nearest import cpu, oracle

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
