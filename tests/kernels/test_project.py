"""Heads in float32 stay within the bound that is claimed for them; heads of pairs are float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.bottleneck.heads import Projection
from dkvb.bottleneck.keys import first_of_equals
from dkvb.bottleneck.projection import make_projection
from dkvb.kernels.nearest import build_index, cpu, oracle, prepare_matrices, rescore

KEY_DIMS = [1, 3, 7, 8, 9, 14, 16, 17, 40]


def make(n, width, n_codebooks, key_dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, width, dtype=torch.float64, generator=generator)
    return rows, torch.randn(n_codebooks, width, key_dim, generator=generator)


def heads_of(rows, matrices, scale):
    """The heads that are searched, with any keys."""
    n_codebooks, _, key_dim = matrices.shape
    keys = cpu.prepare(torch.ones(n_codebooks, 1, key_dim), torch.ones(n_codebooks, 1))
    ones = torch.ones(n_codebooks, dtype=torch.float64)
    how = (keys, torch.zeros(len(rows), dtype=torch.float64), ones, ones, scale)
    return cpu.search_rows(rows, cpu.prepare_matrices(matrices), *how)[2]


def errors(rows, matrices, scale):
    """Of each head, how much of the bound its error is."""
    heads = heads_of(rows, matrices, scale)
    exact = oracle.project(rows, matrices) * scale[:, None]
    norms = matrices.double().flatten(1).norm(dim=1)
    bound = cpu.HEAD_ROUNDOFF * rows.norm(dim=1)[:, None] * norms * scale
    return (heads.double() - exact).norm(dim=2) / bound.clamp(min=1e-300)


@pytest.mark.parametrize("key_dim", KEY_DIMS)
@pytest.mark.parametrize(("n", "width"), [(1, 1), (3, 63), (4, 64), (5, 65), (257, 130), (600, 7)])
def test_heads_of_odd_shapes(n, width, key_dim):
    rows, matrices = make(n, width, 5, key_dim)
    scale = torch.exp2(torch.arange(-2, 3).double())
    assert errors(rows, matrices, scale).max() < 1
    row, book = torch.arange(n).repeat(5), torch.arange(5).repeat_interleave(n)
    pairs = rescore.project_pairs(rows, matrices, row, book)
    expected = oracle.project(rows, matrices)[row, book]
    torch.testing.assert_close(pairs, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("key_dim", [1, 8, 14])
@pytest.mark.parametrize(("n", "top"), [(1, 1), (21, 1), (9, 3)])
def test_distances_from_heads_to_the_keys_that_codes_name(n, top, key_dim):
    rows, matrices = make(n, 19, 5, key_dim)
    keys, codes = torch.randn(5, 7, key_dim), torch.randint(7, (n, 5, top), dtype=torch.int32)
    found = rescore.distances(rows, matrices, keys, codes)
    named = keys[torch.arange(5)[:, None], codes.long()].double()  # (n, C, top, d)
    expected = (oracle.project(rows, matrices)[:, :, None] - named).square().sum(dim=3)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(rescore.distances(rows[-1:], matrices, keys, codes[-1:]), found[-1:])
    codes[0, 3, 0] = 7
    with pytest.raises(ValueError, match="codes: expected 0 to 6"):
        rescore.distances(rows, matrices, keys, codes)


@pytest.mark.parametrize(("n", "width", "d"), [(1, 1, 1), (3, 65, 7), (5, 64, 8), (9, 130, 33)])
def test_a_product_with_a_few_rows(n, width, d):
    rows, matrices = make(n, width, 1, d)
    found = rescore.multiply(rows, matrices[0])
    torch.testing.assert_close(found, rows @ matrices[0].double(), rtol=1e-12, atol=1e-12)
    assert torch.equal(rescore.multiply(rows[-1:], matrices[0]), found[-1:])


@pytest.mark.parametrize("key_dim", [1, 8, 14])
@pytest.mark.parametrize(("n", "n_pairs"), [(1, 1), (21, 70), (300, 5)])
def test_keys_and_distances_in_one_pass(n, n_pairs, key_dim):
    rows, matrices = make(n, 19, 5, key_dim)
    keys = torch.randn(5, n_pairs, key_dim, generator=torch.Generator().manual_seed(1))
    keys[:, -1] = keys[:, 0]  # which comes first
    first = first_of_equals(keys)
    index, norms = build_index(keys, first), matrices.double().flatten(1).norm(dim=1)
    error = 1e-12 * rows.norm(dim=1)
    how = (index.layout, index.bias, error, norms * index.scale, index.reach, index.scale)
    codes, unsure, squared = rescore.search_with_distances(rows, matrices, *how)
    expected = squared_distances_to_all(rows, matrices, keys).masked_fill(~first, torch.inf)
    assert not unsure.any()
    assert torch.equal(codes[:, :, 0].long(), expected.argmin(dim=2))
    assert torch.equal(squared, rescore.distances(rows, matrices, keys, codes)[:, :, 0])
    torch.testing.assert_close(squared, expected.amin(dim=2), rtol=1e-12, atol=1e-12)
    alone = rescore.search_with_distances(rows[-1:], matrices, *how[:2], error[-1:], *how[3:])
    assert torch.equal(alone[2], squared[-1:])


def test_what_float64_cannot_decide_is_unsure():
    rows, matrices = make(4, 19, 2, 8)
    keys = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(1))
    index = build_index(keys)
    how = (index.layout, index.bias, torch.full((4,), 1e3).double(), torch.ones(2).double())
    found = rescore.search_with_distances(rows, matrices, *how, index.reach, index.scale)
    assert found[1].all()  # the exact heads may lie a thousand away from these
    assert (found[0] < 9).all()


def squared_distances_to_all(rows, matrices, keys):
    """(n, C, K)"""
    heads = oracle.project(rows, matrices)
    return (heads[:, :, None] - keys.double()).square().sum(dim=3)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    exponent=st.integers(-120, 120),
    width=st.integers(1, 200),
    one_sided=st.booleans(),
)
def test_rows_of_any_size_stay_within_the_bound(seed, exponent, width, one_sided):
    rows, matrices = make(6, width, 3, 5, seed)
    if one_sided:  # sums grow with every product, and so does rounding
        rows, matrices = rows.abs(), matrices.abs()
    rows = rows * 2.0**exponent
    rows[0] = 0
    rows[1, 1:] *= 1e-30
    scale = torch.full((3,), 2.0**-exponent, dtype=torch.float64)
    assert errors(rows, matrices, scale).max() < 1


def test_the_bound_is_for_sums_of_the_stated_depth():
    """Rounding that always goes the same way: a bound for fewer terms would not hold."""
    width = cpu.DEPTH
    rows = torch.ones(1, width, dtype=torch.float64)
    rows[0, 1:] = 2.0**-24 * 0.99  # each is lost beside the first
    matrices = torch.ones(1, width, 1)
    found = heads_of(rows, matrices, torch.ones(1, dtype=torch.float64))
    lost = abs(float(found[0, 0, 0]) - float(rows.sum()))
    assert lost <= cpu.HEAD_ROUNDOFF * float(rows.norm()) * width**0.5


def test_threads_do_not_matter():
    rows, matrices = make(300, 200, 40, 14)
    scale = torch.ones(40, dtype=torch.float64)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(heads_of(rows, matrices, scale))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_matrices_that_float32_products_could_not_hold(factor):
    matrices = make(1, 8, 2, 3)[1] * factor
    projection = Projection("gaussian", 2, 3, 8, matrices)
    assert prepare_matrices(matrices, projection._norms) is None
    assert not projection.has_float32


def test_only_gaussian_projections_have_float32():
    assert make_projection("gaussian", 6, n_codebooks=3, key_dim=2, seed=0).has_float32
    assert not make_projection("partition", 6, n_codebooks=3, key_dim=None, seed=0).has_float32
