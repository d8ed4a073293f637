"""From rows to the heads of each codebook."""

import pytest
import torch

from dkvb.bottleneck import projection as projection_module
from dkvb.bottleneck.projection import make_projection


def test_gaussian_matrices_have_columns_of_unit_length():
    projection = make_projection("gaussian", 50, n_codebooks=7, key_dim=3, seed=0)
    assert projection.matrices.shape == (7, 50, 3)
    assert projection.matrices.dtype == torch.float32
    torch.testing.assert_close(projection.matrices.norm(dim=1), torch.ones(7, 3))
    assert abs(float(projection.matrices.mean())) < 0.02
    assert len(projection.matrices.flatten().unique()) > 1000  # codebooks differ


def test_the_seed_decides():
    one, same, other = (
        make_projection("gaussian", 9, n_codebooks=2, key_dim=3, seed=seed).matrices
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("count", [5, 16, 4096, 4096 + 48, 4099])
@pytest.mark.parametrize("threads", [1, 3])
def test_several_threads_draw_the_numbers_of_one(count, threads, monkeypatch):
    monkeypatch.setattr(projection_module, "MANY", 1)
    monkeypatch.setattr(projection_module, "SKIPPED_AT_ONCE", 1000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    generator = torch.Generator().manual_seed(3)
    expected = torch.randn(count, dtype=torch.float64, generator=generator)
    assert torch.equal(projection_module._normal(count, 3), expected)


def test_heads_by_hand():
    rows = torch.arange(12.0).double().view(2, 6)
    gaussian = make_projection("gaussian", 6, n_codebooks=3, key_dim=4, seed=0)
    expected = torch.stack([rows @ matrix.double() for matrix in gaussian.matrices], dim=1)
    torch.testing.assert_close(gaussian(rows), expected)
    partition = make_projection("partition", 6, n_codebooks=3, key_dim=None, seed=0)
    assert partition(rows)[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    identity = make_projection("identity", 6, n_codebooks=2, key_dim=6, seed=0)
    assert torch.equal(identity(rows), torch.stack([rows, rows], dim=1))


@pytest.mark.parametrize("kind", ["gaussian", "partition", "identity"])
@pytest.mark.parametrize("width", [6, 300])
def test_exact_heads_are_near_and_know_no_company(kind, width):
    torch.manual_seed(0)
    projection = make_projection(
        kind, width, n_codebooks=3, key_dim=2 if kind == "gaussian" else None, seed=0
    )
    rows = 100 * torch.randn(17, width, dtype=torch.float64)
    heads = projection(rows)
    bound = projection.with_error(rows, torch.zeros(17, dtype=torch.float64))[1]
    assert bound.shape == (17, 3)
    assert (bound < 1e-8).all()
    for book in range(3):
        books = torch.full((17,), book)
        exact = projection.exact(rows, books)
        alone = [projection.exact(row[None], books[:1]) for row in rows]
        assert torch.equal(torch.cat(alone), exact)
        assert ((heads[:, book] - exact).norm(dim=1) <= bound[:, book]).all()
        part = projection(rows, slice(book, book + 1))
        torch.testing.assert_close(part, heads[:, book : book + 1])
    moved = rows + 0.01 / width**0.5 * torch.randn(17, width).sign()  # 0.01 away, in norm
    slack = projection.with_error(rows, torch.full((17,), 0.0101, dtype=torch.float64))[1]
    assert ((projection(moved) - heads).norm(dim=2) <= slack).all()


@pytest.mark.parametrize(
    ("kind", "n_codebooks", "key_dim", "message"),
    [
        ("pca", 2, 2, "projection: expected one of 'gaussian', 'partition', 'identity'; got 'pca'"),
        ("gaussian", 2, None, "key_dim: expected a whole number for projection='gaussian'"),
        ("partition", 4, None, "n_codebooks: expected a divisor of the width 6"),
        ("partition", 3, 3, "key_dim: expected 2, or None"),
        ("identity", 2, 3, "key_dim: expected 6, or None"),
    ],
)
def test_settings_that_do_not_fit(kind, n_codebooks, key_dim, message):
    with pytest.raises(ValueError, match=message):
        make_projection(kind, 6, n_codebooks=n_codebooks, key_dim=key_dim, seed=0)
