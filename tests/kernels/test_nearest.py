"""The search with its bound, the same for every backend, and the decision that settles doubts."""

import pytest
import torch

from dkvb.kernels import BACKENDS, choose, nearest
from dkvb.kernels.nearest import decide, oracle, squared_distances, tree_sum

# n, C, K, d: one of everything, primes, key dimensions 1 to 96, pairs around the size of a block
SHAPES = [
    (1, 1, 1, 1),
    (7, 2, 65, 1),
    (67, 3, 31, 2),
    (13, 2, 127, 14),
    (5, 2, 300, 33),
    (3, 1, 1021, 96),
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param == "triton":
        pytest.importorskip("triton")
    return request.param


def searched(backend, heads, keys, allowed=None, top=1, error=0.0):
    """Codes and doubts of `backend`: Triton's on the GPU where there is one, else interpreted."""
    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    allowed = None if allowed is None else allowed.to(device)
    index = nearest.build_index(keys.to(device), allowed, backend)
    codes, unsure = nearest.search(index, heads.to(device), top, error)
    return codes.cpu(), unsure.cpu()


@pytest.fixture
def poisoned():
    """Fresh tensors hold NaN or the largest integer, so that an output left unwritten shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def decided(heads, keys, allowed=None, top=1):
    """Codes (n, C, top) and squared distances by the decision that is always right."""
    n, C, _ = heads.shape
    allowed = torch.ones(keys.shape[:2], dtype=torch.bool) if allowed is None else allowed
    parts = [
        decide(heads[:, c], keys[c].expand(n, -1, -1), allowed[c].expand(n, -1), top)
        for c in range(C)
    ]
    return torch.stack([p[0] for p in parts], 1), torch.stack([p[1] for p in parts], 1)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("top", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_codes_that_are_sure_are_right(shape, top, backend):
    n, C, K, d = shape
    torch.manual_seed(n + K)
    heads, keys = torch.randn(n, C, d).double(), torch.randn(C, K, d)
    top = min(top, K)
    codes, unsure = searched(backend, heads, keys, top=top)
    expected, _ = decided(heads, keys, top=top)
    assert codes.shape == (n, C, top)
    assert codes.dtype == torch.int32
    assert torch.equal(codes[~unsure], expected[~unsure])
    assert ((codes >= 0) & (codes < K)).all()
    assert unsure.double().mean() < 0.05


@pytest.mark.parametrize("top", [1, 2])
def test_exact_ties_are_unsure_and_go_to_the_lowest_index(top, backend):
    torch.manual_seed(0)
    keys = torch.randint(-2, 3, (3, 40, 2)).float()
    heads = torch.randint(-2, 3, (30, 3, 2)).double()
    codes, unsure = searched(backend, heads, keys, top=top)
    expected, _ = decided(heads, keys, top=top)
    _, squared = decided(heads, keys, top=top + 1)
    tied = (squared.diff(dim=2) == 0).any(dim=2)
    assert tied.any()
    assert torch.equal(unsure, tied)
    assert torch.equal(codes[~unsure], expected[~unsure])
    assert torch.equal(codes[:, :, 0], expected[:, :, 0])  # whole numbers: float32 is exact here


def test_the_bound_covers_what_rounding_can_do(backend):
    """Keys so close together, far from the origin, that float32 scores cannot tell them apart."""
    torch.manual_seed(0)
    keys = (100 + 1e-4 * torch.randn(1, 50, 4)).float()
    heads = keys[0, torch.randint(50, (200,))].double()[:, None] + 1e-6 * torch.randn(200, 1, 4)
    codes, unsure = searched(backend, heads, keys)
    expected, _ = decided(heads, keys)
    assert torch.equal(codes[~unsure], expected[~unsure])
    if backend != "oracle":
        assert unsure.double().mean() > 0.5


def test_uncertain_heads_make_uncertain_codes(backend):
    keys = torch.tensor([[[0.0], [1.0]]])
    heads = torch.tensor([[[0.2]], [[0.49]], [[0.8]]]).double()
    assert not searched(backend, heads, keys)[1].any()
    unsure = searched(backend, heads, keys, error=0.05)[1]
    assert unsure.flatten().tolist() == [False, True, False]


def test_forbidden_keys_are_not_chosen(backend):
    torch.manual_seed(0)
    heads, keys = torch.randn(40, 3, 5).double(), torch.randn(3, 70, 5)
    allowed = torch.rand(3, 70) < 0.1
    allowed[0, 3], allowed[2] = True, False
    allowed[2, 69] = True
    codes, unsure = searched(backend, heads, keys, allowed)
    expected, _ = decided(heads, keys, allowed)
    assert torch.equal(codes[~unsure], expected[~unsure])
    assert (codes[:, 2] == 69).all()
    assert not unsure[:, 2].any()
    codes, unsure = searched(backend, heads, keys, allowed, top=2)
    assert unsure[:, 2].all()  # there is only one
    assert ((codes >= 0) & (codes < 70)).all()


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e20, 1e38])
def test_scale_does_not_matter(scale, backend):
    torch.manual_seed(0)
    heads, keys = torch.randn(40, 2, 5).double(), torch.randn(2, 70, 5).clamp(-3, 3)
    factor = 2.0 ** round(torch.tensor(scale, dtype=torch.float64).log2().item() - 1)
    plain = searched(backend, heads, keys)
    scaled = searched(backend, heads * factor, keys * factor)
    assert torch.equal(plain[0], scaled[0])
    assert torch.equal(plain[1], scaled[1])


# Triton's interpreter warns of what a GPU computes silently.
@pytest.mark.filterwarnings("ignore:(invalid|overflow).*:RuntimeWarning")
def test_heads_far_outside_the_keys(backend):
    """Products that float16 cannot hold must not give a code that is sure and wrong."""
    torch.manual_seed(0)
    heads, keys = 1e6 * torch.randn(40, 2, 5).double(), torch.randn(2, 70, 5)
    codes, unsure = searched(backend, heads, keys)
    expected, _ = decided(heads, keys)
    assert torch.equal(codes[~unsure], expected[~unsure])


# Triton's interpreter warns of what a GPU computes silently.
@pytest.mark.filterwarnings("ignore:(invalid|overflow|All-NaN).*:RuntimeWarning")
def test_nothing_is_sure_where_scores_are_no_float32_numbers(backend):
    keys = 1e-30 * torch.arange(1.0, 257.0).view(1, 256, 1)  # no key that only fills a block up
    heads = torch.tensor([[[1e20]], [[-1e20]], [[1e-30]]]).double()
    unsure = searched(backend, heads, keys)[1]
    assert unsure.flatten().tolist() == [True, True, False]


def test_a_tree_of_sums():
    torch.manual_seed(0)
    for length in (1, 2, 3, 7, 64, 101):
        terms = torch.randn(4, length, 3, dtype=torch.float64)
        torch.testing.assert_close(tree_sum(terms, dim=1), terms.sum(dim=1))
        alone = torch.stack([tree_sum(row, dim=0) for row in terms])
        assert torch.equal(alone, tree_sum(terms, dim=1))
    # The order is fixed: (a + c) + b for three terms.
    assert tree_sum(torch.tensor([1e16, 1.0, -1e16], dtype=torch.float64), 0) == 1.0


def test_distances_and_decisions():
    heads = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    keys = torch.tensor([[[3.0, 4.0], [0.0, 1.0], [0.0, -1.0]]]).expand(2, -1, -1)
    squared = squared_distances(heads, keys)
    assert squared.tolist() == [[25.0, 1.0, 1.0], [0.0, 18.0, 34.0]]
    allowed = torch.tensor([[True, False, True], [True, True, False]])
    codes, squared = decide(heads, keys, allowed, 3)
    assert codes[:, :2].tolist() == [[2, 0], [0, 1]]
    assert squared.tolist() == [[1.0, 25.0, torch.inf], [0.0, 18.0, torch.inf]]


def test_the_oracles_own_search_needs_no_tolerance_to_be_right():
    torch.manual_seed(0)
    heads, keys = torch.randn(50, 2, 3).double(), torch.randn(2, 9, 3).double()
    prepared = oracle.prepare(keys, 0.5 * keys.square().sum(2))
    codes, unsure = oracle.search(heads, prepared, torch.zeros(50, 2), top=9)
    assert torch.equal(codes, decided(heads, keys, top=9)[0])
    assert not unsure.any()


def test_choosing_a_backend():
    assert choose("cpu", "oracle") == "oracle"
    assert choose("cpu") in ("cpu", "oracle")
    with pytest.raises(ValueError, match="backend: expected one of 'oracle', 'cpu', 'triton'"):
        choose("cpu", "cuda")
    with pytest.raises(ValueError, match="backend: 'cpu' needs tensors on the CPU"):
        choose("meta", "cpu")
    assert choose("meta") == "oracle"
