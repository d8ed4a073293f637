"""Codes are canonical: the float64 decision's, whatever finds them."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import fit_keys
from dkvb.bottleneck import batch as batch_module
from dkvb.bottleneck import keys as keys_module
from dkvb.bottleneck.heads import Conditioning
from dkvb.bottleneck.projection import make_projection

from .examples import BACKENDS, SHAPES, by_brute_force, canonical, gaussian_keys, keys_of


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param == "triton":
        pytest.importorskip("triton")
    return request.param


def codes_of(keys, X, backend, **how):
    """Codes by `backend`: Triton's on the GPU where there is one, else interpreted."""
    on_gpu = backend == "triton" and torch.cuda.is_available()
    found = keys.to("cuda" if on_gpu else "cpu").codes(X, backend=backend, **{"top": 1, **how})
    return found.cpu().int()


def decided_again(keys, X, backend, top=1):
    """The share of heads whose code took a second look."""
    keys = keys.to("cuda" if backend == "triton" and torch.cuda.is_available() else "cpu")
    index, allowed = keys._restricted(None, backend)
    return sum(count for _, _, count in keys._search(X, index, allowed, top)) / (
        len(X) * keys.n_codebooks
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_odd_shapes(shape, backend):
    keys, X = gaussian_keys(*shape)
    for top in {1, min(3, keys.n_pairs)}:
        found = codes_of(keys, X, backend, top=top)
        assert found.shape == (shape[0], shape[2], top)
        assert torch.equal(found, canonical(keys, X, top=top))


def test_the_slow_decision_is_right():
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    heads = np.einsum("np,cpd->ncd", X.double().numpy(), keys.projection.matrices.double().numpy())
    expected = by_brute_force(heads, keys.keys.double().numpy(), top=31)
    assert np.array_equal(canonical(keys, X, top=31).numpy(), expected)


@pytest.mark.parametrize("top", [1, 4])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_ties_go_to_the_lowest_index(d, top, backend, rng):
    grid = rng.integers(-2, 3, size=(3, 37, d))
    heads = rng.integers(-2, 3, size=(50, d))
    for book in grid:  # no two keys equal: those are another test's
        book[:, 0] += 5 * np.arange(37)
    heads[:, 0] = 5 * rng.integers(0, 37, size=50) + rng.integers(-2, 3, size=50)
    expected = by_brute_force(heads[:, None], grid, top)
    second = by_brute_force(heads[:, None], grid[:, ::-1], top)
    assert (36 - second != expected).any()  # there are ties
    keys = keys_of(torch.from_numpy(grid).float())
    found = codes_of(keys, torch.from_numpy(heads).float(), backend, top=top)
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_rows_halfway_between_two_keys(scale, backend):
    torch.manual_seed(0)
    own = scale * torch.randn(2, 23, 3)
    X = (own[0, :-1] + own[0, 1:]) / 2  # as near to a tie as float32 comes
    keys = keys_of(own)
    assert torch.equal(codes_of(keys, X, backend), canonical(keys, X))
    if backend != "oracle":
        assert decided_again(keys, X, backend) > 0.01


def test_rows_halfway_between_the_projections_of_keys(backend):
    """The heads themselves are rounded, by a matrix product not as by the slow decision."""
    torch.manual_seed(0)
    projection = make_projection("gaussian", 64, n_codebooks=40, key_dim=1, seed=0)
    X = torch.randn(40, 64)
    heads = projection(X.double())  # (40, 40, 1)
    step = torch.tensor([[-1.0], [1.0], [-2.0], [2.0]])
    # Four keys around the head of row c in codebook c, each as far as float32 can place it.
    own = torch.stack([(heads[c, c] + step.double()).float() for c in range(40)])
    keys = keys_of(own, projection)
    assert torch.equal(codes_of(keys, X, backend), canonical(keys, X))


def test_an_offset_that_dwarfs_the_spread(backend, rng):
    X = torch.from_numpy((1e4 + rng.normal(size=(300, 16))).astype(np.float32))
    keys = fit_keys(
        X, preset="paper", n_codebooks=3, n_pairs=50, key_dim=4, method="lloyd", epochs=2
    )
    found = codes_of(keys, X, backend)
    assert torch.equal(found, canonical(keys, X))
    assert np.array_equal(
        found.numpy(), by_brute_force(keys.heads(X).numpy(), keys.keys.double().numpy())
    )
    assert decided_again(keys, X, backend) < 0.01
    assert keys.report.relative_error < 0.3


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-38])
def test_huge_and_tiny_numbers(scale, backend):
    keys, X = gaussian_keys(40, 11, 3, 31, 4, scale)
    assert torch.equal(codes_of(keys, X, backend), canonical(keys, X))
    assert decided_again(keys, X, backend) < 0.05


# Triton's interpreter warns of what a GPU computes silently.
@pytest.mark.filterwarnings("ignore:(invalid|overflow|All-NaN).*:RuntimeWarning")
def test_rows_far_beyond_the_keys(backend):
    torch.manual_seed(0)
    keys = keys_of(torch.randn(2, 19, 3))
    signs = torch.tensor([[1.0, 1, 1], [-1, 1, 0], [0, -1, 1], [1, 0, 0]])
    for far in (1e4, 1e8, 1e12, 1e20, 1e38):
        X = far * signs
        assert torch.equal(codes_of(keys, X, backend), canonical(keys, X)), far
    tiny = keys_of(1e-30 * keys.keys)
    X = 1e20 * signs  # their scores are no float32 numbers
    assert torch.equal(codes_of(tiny, X, backend), canonical(tiny, X))
    line, X = keys_of(torch.tensor([[[-1e-30], [1e-30], [2e-30]]])), torch.tensor([[1e20], [-1e20]])
    assert torch.equal(codes_of(line, X, backend), canonical(line, X))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), active=st.booleans())
def test_the_first_of_equal_keys(seed, active):
    torch.manual_seed(seed)
    keys = torch.randint(-1, 2, (3, 12, 2)) * torch.tensor([1.0, -1.0])  # also −0.0
    allowed = torch.rand(3, 12) < 0.6 if active else torch.ones(3, 12, dtype=torch.bool)
    expected = torch.zeros(3, 12, dtype=torch.bool)
    for book in range(3):
        seen = set()
        for key in torch.nonzero(allowed[book])[:, 0].tolist():
            item = tuple((keys[book, key] + 0.0).tolist())
            expected[book, key] = item not in seen
            seen.add(item)
    found = keys_module.first_of_equals(keys, allowed if active else None)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_keys_of_one_dimension_are_found(dtype):
    keys = torch.tensor([[1.0], [2.0], [1.0]], dtype=dtype).expand(2, 3, 1)
    assert keys_module.first_of_equals(keys).tolist() == [[True, True, False]] * 2


def test_equal_keys_are_one_key(backend):
    torch.manual_seed(0)
    own = torch.randn(2, 10, 3).repeat(1, 3, 1)  # every key three times
    own[0, 4] = 0.0
    own[0, 17] = -0.0
    keys, X = keys_of(own), torch.randn(30, 3)
    found = codes_of(keys, X, backend)
    assert torch.equal(found, canonical(keys, X))
    assert decided_again(keys, X, backend) < 0.05
    assert keys.first_of_equals.sum(1).tolist() == [11, 10]  # and zero, which two others became
    assert (found[:, 1] < 10).all()
    without_first = torch.ones(2, 30, dtype=torch.bool)
    without_first[:, :10] = False
    again = codes_of(keys, X, backend, active=without_first)
    assert (again[:, 1] == found[:, 1] + 10).all()


def test_search_among_active_keys(backend):
    torch.manual_seed(0)
    keys, X = gaussian_keys(41, 7, 3, 53, 3)
    active = torch.rand(3, 53) < 0.2
    active[1] = False
    active[1, [5, 40]] = True  # two are left
    for top in (1, 4):
        found = codes_of(keys, X, backend, top=top, active=active)
        assert torch.equal(found, canonical(keys, X, active, top))
        assert active[torch.arange(3)[:, None], found.long()].all()
    # Where there are fewer than asked for, the farthest of them stands for the missing.
    assert (found[:, 1, 2:] == found[:, 1, 1:2]).all()
    assert (found[:, 1, 0] != found[:, 1, 1]).all()


@pytest.mark.parametrize("conditioning", ["half-whitened", "whitened"])
def test_conditioned_rows(conditioning, backend, rng):
    X = rng.normal(size=(200, 12)).astype(np.float32) * np.linspace(0.1, 3, 12, dtype=np.float32)
    keys = fit_keys(
        np.abs(X), n_codebooks=3, n_pairs=20, key_dim=3, epochs=2, conditioning=conditioning
    )
    rows = torch.from_numpy(np.abs(X[:40]))
    assert torch.equal(codes_of(keys, rows, backend), canonical(keys, rows))


def test_any_batch_and_any_number_of_threads(backend, monkeypatch):
    keys, X = gaussian_keys(103, 17, 4, 61, 5)
    X[50:100] = X[:50].clone()
    together = codes_of(keys, X, backend, top=2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = codes_of(keys, X, backend, top=2)
    torch.set_num_threads(threads)
    assert torch.equal(alone, together)
    apart = [codes_of(keys, part, backend, top=2) for part in X.split([1, 40, 2, 60])]
    assert torch.equal(torch.cat(apart), together)
    monkeypatch.setitem(batch_module.CHUNK_ELEMENTS, "cpu", 7 * 60)
    assert torch.equal(codes_of(keys, X, backend, top=2), together)


def test_few_heads_are_decided_again(backend):
    keys, X = gaussian_keys(400, 64, 4, 256, 14)
    assert decided_again(keys, X, backend) < 0.01


def test_every_kind_of_input_gives_the_same_codes(tmp_path):
    keys, X = gaussian_keys(13, 29, 5, 127, 14)
    X = X.half().float()  # exact in every type below
    np.save(tmp_path / "x.npy", X.half().numpy())
    inputs = [
        X.double(), X.half(), X.numpy(), X.double().numpy(), X.tolist(), X.T.contiguous().T,
        np.asfortranarray(X.numpy()), np.load(tmp_path / "x.npy", mmap_mode="r"),
    ]  # fmt: skip
    expected = keys.codes(X, top=1)
    assert all(torch.equal(keys.codes(same, top=1), expected) for same in inputs)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (torch.full((3, 5), torch.nan), ValueError, "X: expected finite.*3 row.*first is row 0"),
        (torch.full((3, 5), torch.inf), ValueError, "X: expected finite"),
        (torch.zeros(3, 4), ValueError, "X: expected width 5.*got 4"),
        (torch.zeros(5), ValueError, "X: expected a 2-d array.*reshape"),
        (torch.zeros(0, 5), ValueError, "X: expected at least one row"),
        (np.array([["a"] * 5]), TypeError, "X: expected real numbers"),
        (torch.zeros(3, 5, dtype=torch.complex64), TypeError, "X: expected real numbers"),
    ],
)
def test_bad_rows(X, error, message):
    keys = keys_of(torch.zeros(1, 2, 5))
    with pytest.raises(error, match=message):
        keys.codes(X)


def test_bad_settings():
    keys, X = keys_of(torch.randn(2, 3, 5)), torch.zeros(4, 5)
    for top in (0, 4, 1.5, True):
        with pytest.raises(ValueError, match="top: expected"):
            keys.codes(X, top=top)
    with pytest.raises(ValueError, match="backend: expected one of 'oracle', 'cpu', 'triton'"):
        keys.codes(X, backend="gpu")
    with pytest.raises(ValueError, match=r"active: expected a boolean tensor of shape \(2, 3\)"):
        keys.codes(X, active=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="active: expected a boolean"):
        keys.codes(X, active=torch.ones(2, 3))
    none_in_second = torch.tensor([[True] * 3, [False] * 3])
    with pytest.raises(ValueError, match="codebook 1 has none"):
        keys.codes(X, active=none_in_second)
    with pytest.raises(ValueError, match="kept: expected at least one key a codebook"):
        keys.subset(none_in_second)


def test_more_pairs_than_16_bits_can_name():
    own = torch.arange(70_000.0).reshape(1, -1, 1)
    codes = keys_of(own).codes(torch.tensor([[65_536.2], [3.0], [69_999.0]]))
    assert codes.dtype == torch.int32
    assert keys_of(own[:, : 1 << 16]).codes(torch.zeros(1, 1), top=1).dtype == torch.uint16
    assert codes.flatten().tolist() == [65_536, 3, 69_999]


def test_distances():
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    codes = keys.codes(X, top=5)
    every = (keys.heads(X)[:, :, None] - keys.keys.double()).square().sum(3)  # (n, C, K)
    expected = every.gather(2, codes.long())
    torch.testing.assert_close(keys.distances(X, codes), expected)
    torch.testing.assert_close(keys.distances(X, codes[:, :, 1]), expected[:, :, 1])
    assert (expected.diff(dim=2) >= 0).all()


def test_a_subset_assigns_as_a_search_among_its_keys():
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    kept = torch.zeros(3, 31, dtype=torch.bool)
    kept[0, [30, 4]] = kept[1, :17] = kept[2, 9] = True
    smaller, place = keys.subset(kept)
    assert smaller.keys.shape == (3, 17, 2)
    codes = smaller.codes(X).long()
    assert torch.equal(place[torch.arange(3), codes].int(), keys.codes(X, active=kept).int())
    assert (codes[:, 0] < 2).all()
    assert (codes[:, 2] == 0).all()


@pytest.mark.parametrize("kept_twin", [4, 8])
def test_equal_keys_stay_equal_in_a_subset(kept_twin):
    keys, _ = gaussian_keys(61, 11, 3, 31, 2)
    twins = keys.keys.clone()
    twins[1, 8] = twins[1, 4]
    keys = replace(keys, keys=twins)
    kept = torch.zeros(3, 31, dtype=torch.bool)
    kept[:, [2, 30]] = kept[1, [kept_twin, 8]] = True
    smaller, _ = keys.subset(kept)
    assert torch.equal(smaller.first_of_equals, keys_module.first_of_equals(smaller.keys))


def test_the_fingerprint_tells_keys_apart():
    keys, _ = gaussian_keys(13, 29, 5, 127, 14)
    twin, _ = gaussian_keys(13, 29, 5, 127, 14)
    assert twin.fingerprint == keys.fingerprint
    assert pickle.loads(pickle.dumps(keys)).fingerprint == keys.fingerprint
    moved = keys.keys.clone()
    moved[4, 126, 13] = torch.nextafter(moved[4, 126, 13], torch.tensor(9.0))
    matrices = -keys.projection.matrices
    others = [
        replace(keys, keys=moved),
        replace(keys, projection=replace(keys.projection, matrices=matrices)),
        replace(keys, conditioning=Conditioning(torch.ones(29))),
        replace(keys, conditioning=replace(keys.conditioning, power=0.5)),
    ]
    assert len({keys.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_keys_are_shared_and_frozen():
    keys, _ = gaussian_keys(13, 29, 5, 127, 14)
    assert copy.deepcopy(keys) is keys
    assert keys.to("cpu") is keys
    with pytest.raises(FrozenInstanceError):
        keys.keys = torch.zeros(1)
    assert "5 codebooks × 127 pairs, key_dim=14, width=29" in repr(keys)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_codes_on_a_cuda_device():
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    moved = keys.to("cuda")
    assert moved.fingerprint == keys.fingerprint
    for rows in (X, X.cuda()):
        found = moved.codes(rows, top=2)
        assert found.is_cuda
        assert torch.equal(found.cpu(), keys.codes(X, top=2))
