"""Ridge regression from sums, against the obvious solution from rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.learning import least_squares as ridge


@pytest.fixture
def problem():
    """Features (n, M), columns (n,) of a noisy linear problem, and which rows are held out."""
    generator = torch.Generator().manual_seed(0)
    phi = torch.rand(400, 30, generator=generator, dtype=torch.float64)
    scores = phi @ torch.randn(30, 4, generator=generator, dtype=torch.float64)
    columns = (scores + torch.randn(400, 4, generator=generator, dtype=torch.float64)).argmax(dim=1)
    return phi, columns, ridge.held_out(phi.float())


def sums_of(phi, columns, held, n_columns=4):
    sums = ridge.empty(phi.shape[1], n_columns)
    ridge.add(sums, phi, columns, held)
    return sums


def fields(sums):
    """All sums; of the grams what counts, the upper triangle."""
    return [
        value.triu() if value.ndim == 2 and value.shape[0] == value.shape[1] else value
        for value in vars(sums).values()
    ]


def same(first, second, tolerance):
    return all(
        torch.allclose(a, b, rtol=tolerance, atol=tolerance)
        for a, b in zip(fields(first), fields(second), strict=True)
    )


def by_hand(phi, columns, lam, n_columns=4):
    gram = phi.T @ phi
    penalty = lam * gram.trace() / len(gram) * torch.eye(len(gram), dtype=torch.float64)
    one_hot = torch.nn.functional.one_hot(columns, n_columns).double()
    return torch.linalg.solve(gram + penalty, phi.T @ one_hot)


@pytest.mark.parametrize("stripe", [7, 30, 1024])
@pytest.mark.parametrize("rows", [64, 2048])
def test_solution_from_sums_is_the_solution_from_rows(problem, monkeypatch, stripe, rows):
    monkeypatch.setattr(ridge, "_STRIPE", stripe)
    monkeypatch.setattr(ridge, "_ROWS", rows)
    phi, columns, held = problem
    sums = sums_of(phi, columns, held)
    assert 0 < held.sum() < len(held)
    assert torch.allclose(ridge.solve(sums, 1e-3), by_hand(phi, columns, 1e-3))
    learned = by_hand(phi[~held], columns[~held], 1e-3)
    assert torch.allclose(ridge.solve(sums, 1e-3, without_held=True), learned)
    assert torch.equal(sums.count + sums.held_count, columns.bincount(minlength=4).double())


def test_error_from_sums_is_the_error_on_rows(problem):
    phi, columns, held = problem
    sums = sums_of(phi, columns, held)
    one_hot = torch.nn.functional.one_hot(columns, 4).double()
    for values in (ridge.solve(sums, 1e-2, without_held=True), torch.ones(30, 4).double()):
        residual = one_hot[held] - phi[held] @ values
        expected = (residual**2).sum() - (one_hot[held] ** 2).sum()
        assert ridge.squared_error(sums, values) == pytest.approx(float(expected))


def test_chosen_lambda_is_the_best_of_the_grid(problem):
    phi, columns, held = problem
    for noise in (0.0, 1.0):  # features that say less want a larger λ
        mixed = (1 - noise) * phi + noise * torch.rand_like(phi)
        sums = sums_of(mixed, columns, held)
        errors = [
            ridge.squared_error(sums, ridge.solve(sums, lam, without_held=True))
            for lam in ridge.GRID
        ]
        assert ridge.choose_lambda(sums) == ridge.GRID[int(np.argmin(errors))]


def test_search_looks_at_part_of_the_grid(problem, monkeypatch):
    looks = []
    for best in range(len(ridge.GRID)):
        seen = []

        def judge(sums, values, best=best, seen=seen):
            seen.append(values)
            return abs(np.log(float(values)) - np.log(ridge.GRID[best]))

        monkeypatch.setitem(ridge.CRITERIA, "distance", judge)
        monkeypatch.setattr(ridge, "solve", lambda sums, lam, without_held: lam)
        assert ridge.choose_lambda(sums_of(*problem), criterion="distance") == ridge.GRID[best]
        looks.append(len(seen))
    assert max(looks) <= 8
    assert np.mean(looks) < 7


def test_lambda_without_rows_to_choose_by(problem):
    phi, columns, held = problem
    for none in (torch.zeros_like(held), torch.ones_like(held)):
        values, lam = ridge.fit(sums_of(phi, columns, none))
        assert lam == 1e-3
        assert torch.allclose(values, by_hand(phi, columns, 1e-3))


def test_unknown_criterion(problem):
    with pytest.raises(ValueError, match=r"criterion.*'squared_error'.*got 'luck'"):
        ridge.choose_lambda(sums_of(*problem), criterion="luck")


@settings(max_examples=20)
@given(data=st.data())
def test_any_order_split_and_merge_give_the_same_sums(data):
    n = 40
    generator = torch.Generator().manual_seed(1)
    phi = torch.rand(n, 6, generator=generator, dtype=torch.float64)
    columns = torch.randint(0, 3, (n,), generator=generator)
    held = ridge.held_out(phi.float(), one_in=3)
    order = torch.tensor(data.draw(st.permutations(range(n))))
    cut = data.draw(st.integers(0, n))
    parts = [sums_of(phi[p], columns[p], held[p], 3) for p in (order[:cut], order[cut:])]
    whole = sums_of(phi, columns, held, 3)
    assert same(ridge.merge(*parts), whole, 1e-12)
    assert same(ridge.merge(whole, parts[1], sign=-1), parts[0], 1e-10)
    ridge.add(whole, phi[order[cut:]], columns[order[cut:]], held[order[cut:]], sign=-1)
    assert same(whole, parts[0], 1e-10)
    assert torch.equal(whole.count, parts[0].count)  # numbers of rows are exact


def test_merge_of_different_shapes(problem):
    phi, columns, held = problem
    sums = sums_of(phi, columns, held)
    with pytest.raises(ValueError, match=r"\(30, 4\); got \(30, 5\); use grow_columns"):
        ridge.merge(sums, ridge.grow_columns(sums, 5))


def test_new_columns_change_nothing_for_the_old(problem):
    phi, columns, held = problem
    grown = ridge.grow_columns(sums_of(phi, columns, held), 6)
    assert torch.equal(ridge.solve(grown, 1e-3)[:, 4:], torch.zeros(30, 2).double())
    assert torch.allclose(ridge.solve(grown, 1e-3)[:, :4], by_hand(phi, columns, 1e-3))


def test_numbers_as_targets(problem):
    phi, columns, held = problem
    one_hot = torch.nn.functional.one_hot(columns, 4).double()
    assert same(sums_of(phi, one_hot, held), sums_of(phi, columns, held), 1e-12)


def test_float32_features_are_summed_in_float64(problem):
    phi, columns, held = problem
    single = sums_of(phi.float(), columns, held)
    assert single.gram.dtype == torch.float64
    assert same(single, sums_of(phi, columns, held), 1e-5)


def test_a_gram_that_rounding_left_indefinite_is_solved_all_the_same():
    phi = torch.ones(5, 3, dtype=torch.float64)
    sums = sums_of(phi, torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.bool), 1)
    sums.gram[0, 1] *= 1 + 1e-4  # |correlation| above one
    assert torch.isfinite(ridge.solve(sums, 1e-9)).all()
    assert torch.equal(ridge.solve(ridge.empty(3, 2), 1e-3), torch.zeros(3, 2).double())


def test_held_out_rows_follow_content_alone(rng):
    rows = torch.from_numpy(rng.normal(size=(5000, 17)).astype(np.float32))
    hashes = ridge.content_hash(rows)
    assert len(hashes.unique()) == 5000
    order = torch.from_numpy(rng.permutation(5000))
    assert torch.equal(ridge.content_hash(rows[order]), hashes[order])
    assert torch.equal(torch.cat([ridge.content_hash(p) for p in rows.split(7)]), hashes)
    assert ridge.held_out(rows).double().mean() == pytest.approx(0.1, abs=0.02)
    # One rounding step away is another row; minus zero is zero.
    assert ridge.content_hash(rows[:1]) != ridge.content_hash(rows[:1].nextafter(rows[:1] + 1))
    zeros = torch.zeros(1, 17)
    assert torch.equal(ridge.content_hash(zeros), ridge.content_hash(-zeros))
    assert len(ridge.content_hash(rows[:0])) == 0
