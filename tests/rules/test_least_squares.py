"""Ridge regression from sums, against the obvious solution from rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.rules.least_squares import choice, ridge
from dkvb.rules.least_squares import sums as sums_
from dkvb.rules.least_squares.factor import factorise


@pytest.fixture
def problem():
    """Features (n, M), columns (n,) of a noisy linear problem, and which rows are held out."""
    generator = torch.Generator().manual_seed(0)
    phi = torch.rand(400, 30, generator=generator, dtype=torch.float64)
    scores = phi @ torch.randn(30, 4, generator=generator, dtype=torch.float64)
    columns = (scores + torch.randn(400, 4, generator=generator, dtype=torch.float64)).argmax(dim=1)
    return phi, columns, sums_.held_out(phi.float())


def sums_of(phi, columns, held, n_columns=4):
    return sums_.update(sums_.empty(phi.shape[1], n_columns), [(phi, columns, held)])


def identical(first, second):
    ours, theirs = first.tensors(), second.tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def close(first, second, tolerance):
    ours, theirs = first.tensors(), second.tensors()
    return all(torch.allclose(ours[k], theirs[k], rtol=tolerance, atol=tolerance) for k in ours)


def solve(moments, lam):
    gram, cross = (sum(getattr(part, name) for part in moments) for name in ("gram", "cross"))
    unit = sum(part.trace for part in moments) / len(cross)
    return factorise(gram, len(cross), lam * unit)[0].solve(cross)


def by_hand(phi, columns, lam, n_columns=4):
    gram = phi.T @ phi
    penalty = lam * gram.trace() / len(gram) * torch.eye(len(gram), dtype=torch.float64)
    one_hot = torch.nn.functional.one_hot(columns, n_columns).double()
    return torch.linalg.solve(gram + penalty, phi.T @ one_hot)


@pytest.mark.parametrize("stripe", [7, 30, 512])
@pytest.mark.parametrize("rows", [64, 400])
def test_solution_from_sums_is_the_solution_from_rows(problem, monkeypatch, stripe, rows):
    monkeypatch.setattr(sums_, "STRIPE", stripe)
    phi, columns, held = problem
    batches = zip(phi.split(rows), columns.split(rows), held.split(rows), strict=True)
    sums = sums_.update(sums_.empty(30, 4), batches)
    assert 0 < held.sum() < len(held)
    both = [sums.learned, sums.held]
    assert torch.allclose(solve(both, 1e-3), by_hand(phi, columns, 1e-3))
    learned = by_hand(phi[~held], columns[~held], 1e-3)
    assert torch.allclose(solve([sums.learned], 1e-3), learned)
    assert torch.equal(sums.total, columns.bincount(minlength=4).double())
    assert torch.allclose(sums_.diagonal(sums.held.gram, 30), phi[held].square().sum(dim=0))


@pytest.mark.parametrize("stripe", [7, 512])
def test_error_from_sums_is_the_error_on_rows(problem, monkeypatch, stripe):
    monkeypatch.setattr(sums_, "STRIPE", stripe)
    phi, columns, held = problem
    sums = sums_of(phi, columns, held)
    one_hot = torch.nn.functional.one_hot(columns, 4).double()
    for values in (solve([sums.learned], 1e-2), torch.ones(30, 4).double()):
        scores = phi[held] @ values
        expected = (one_hot[held] - scores).square().sum()
        found = choice.evaluate_on(sums.held.dense(), values)
        assert torch.allclose(found.score_squares, scores.T @ scores)
        assert torch.allclose(found.score_sums[:, 2], scores[columns[held] == 2].sum(dim=0))
        means = torch.stack([scores[columns[held] == c].mean(dim=0) for c in range(4)])
        within = (scores - means[columns[held]]).square().sum(dim=0) / (len(scores) - 4)
        assert found.score_deviation == pytest.approx(float(within.mean()) ** 0.5)
        assert choice.evaluate_on(sums.held.dense(), values).squared_error == pytest.approx(
            float(expected)
        )


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])  # features that say less want a larger λ
def test_chosen_lambda_is_the_smallest_within_tolerance_of_the_lowest(problem, noise):
    phi, columns, held = problem
    generator = torch.Generator().manual_seed(1)
    other = torch.rand(phi.shape, generator=generator, dtype=torch.float64)
    sums = sums_of((1 - noise) * phi + noise * other, columns, held)
    errors = np.array(
        [
            choice.evaluate_on(sums.held.dense(), solve([sums.learned], lam)).squared_error
            for lam in choice.GRID
        ]
    )
    found = ridge.fit(sums).solution
    chosen = choice.GRID.index(found.lam)
    assert chosen == np.flatnonzero(errors <= 1.05 * errors.min())[-1]
    assert found.held_out_scores.squared_error == pytest.approx(errors[chosen], rel=1e-9)
    assert torch.allclose(found.values, solve([sums.learned, sums.held], found.lam), rtol=1e-9)


def test_search_looks_at_few_places():
    looks = []
    for lowest in np.arange(0, 23, 0.5):
        for width in (4.0, 8.0, 16.0):
            errors = 1 + (np.arange(23) - lowest) ** 2 / width**2
            seen = []

            def error(place, errors=errors, seen=seen):
                seen.append(place)
                return errors[place]

            chosen = choice.select_lambda(error, 23, 0.05)
            best = np.flatnonzero(errors <= 1.05 * errors.min())[-1]
            assert abs(chosen - best) <= 1  # the lowest error is known to a step or so
            assert len(seen) == len(set(seen))
            looks.append(len(seen))
    assert max(looks) <= 9
    assert np.mean(looks) < 6.5


def test_search_survives_a_perfect_fit_and_a_short_grid():
    assert choice.select_lambda(lambda place: 0.0, 23, 0.05) == 22
    assert choice.select_lambda(lambda place: place, 3, 0.05) == 0
    assert choice.select_lambda(lambda place: 1.0, 1, 0.0) == 0
    for last in range(8, 23):  # beyond it, there is no solution
        errors = [abs(place - 9) + 1.0 if place <= last else np.inf for place in range(23)]
        assert abs(choice.select_lambda(errors.__getitem__, 23, 0.05) - min(9, last)) <= 1
        assert np.isfinite(errors[choice.select_lambda(errors.__getitem__, 23, 0.05)])
    assert choice.select_lambda(lambda place: np.inf, 23, 0.05) == 22


def test_lambda_without_rows_to_choose_by(problem):
    phi, columns, held = problem
    for none in (torch.zeros_like(held), torch.ones_like(held)):
        found = ridge.fit(sums_of(phi, columns, none)).solution
        assert found.lam == 0.01
        assert found.held_out_scores is None
        assert torch.allclose(found.values, by_hand(phi, columns, 0.01))


@settings(max_examples=30)
@given(data=st.data())
def test_whole_numbers_give_the_same_bits_in_any_order_split_and_merge(data):
    n = 40
    generator = torch.Generator().manual_seed(1)
    phi = torch.randint(0, 65536, (n, 6), generator=generator).double()
    columns = torch.randint(0, 3, (n,), generator=generator)
    held = sums_.held_out(phi.float(), one_in=3)
    order = torch.tensor(data.draw(st.permutations(range(n))))
    cut = data.draw(st.integers(0, n))
    size = data.draw(st.integers(1, n))
    parts = [sums_of(phi[p], columns[p], held[p], 3) for p in (order[:cut], order[cut:])]
    whole = sums_of(phi, columns, held, 3)
    assert identical(sums_.merge(*parts), whole)
    batches = [(phi[p], columns[p], held[p]) for p in order.split(size)]
    assert identical(sums_.update(sums_.empty(6, 3), batches), whole)
    rest = order[cut:]
    taken = sums_.update(whole, [(phi[rest], columns[rest], held[rest])], sign=-1)
    assert identical(taken, parts[0])
    assert identical(whole, sums_of(phi, columns, held, 3))  # what was given stays as it is


def test_other_numbers_do_so_to_rounding(problem):
    phi, columns, held = problem
    parts = [sums_of(phi[p], columns[p], held[p]) for p in (slice(0, 150), slice(150, 400))]
    whole = sums_of(phi, columns, held)
    assert close(sums_.merge(*parts), whole, 1e-12)
    rest = [(phi[150:], columns[150:], held[150:])]
    assert close(sums_.update(whole, rest, sign=-1), parts[0], 1e-10)


def test_merge_of_different_shapes(problem):
    sums = sums_of(*problem)
    with pytest.raises(ValueError, match=r"\(30, 4\); got \(30, 5\); use map_classes"):
        sums_.merge(sums, sums_.grow_classes(sums, 5))


def test_columns_move_meet_and_go(problem):
    phi, columns, held = problem
    sums = sums_of(phi, columns, held)
    assert identical(sums_.grow_classes(sums, 6), sums_of(phi, columns, held, 6))
    target = torch.tensor([2, 0, 2, 1])
    moved = sums_.map_classes(sums, target, 3)
    assert close(moved, sums_of(phi, target[columns], held, 3), 1e-12)
    dropped = sums_.map_classes(sums, torch.tensor([0, -1, 1, -1]), 2)
    assert torch.equal(dropped.learned.cross, sums.learned.cross[:, [0, 2]])
    assert dropped.learned.gram is sums.learned.gram


def test_numbers_as_targets(problem):
    phi, columns, held = problem
    one_hot = torch.nn.functional.one_hot(columns, 4).double()
    assert close(sums_of(phi, one_hot, held), sums_of(phi, columns, held), 1e-12)
    doubled = sums_of(phi, 2 * one_hot, held)
    assert torch.equal(doubled.held.square, 4 * columns[held].bincount(minlength=4).double())


def test_float32_features_are_summed_in_float64(problem):
    phi, columns, held = problem
    single = sums_of(phi.float(), columns, held)
    assert single.learned.gram.dtype == torch.float64
    assert close(single, sums_of(phi, columns, held), 1e-5)


def test_a_gram_that_rounding_left_indefinite_is_solved_all_the_same():
    phi = torch.ones(5, 3, dtype=torch.float64)
    sums = sums_of(phi, torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.bool), 1)
    sums.learned.gram[1] *= 1 + 1e-4  # |correlation| above one
    assert torch.isfinite(solve([sums.learned], 1e-9)).all()
    found = ridge.fit(sums).solution
    assert found.lam > 0
    nothing = ridge.fit(sums_.empty(3, 2)).solution
    assert torch.equal(nothing.values, torch.zeros(3, 2).double())


def test_held_out_rows_follow_content_alone(rng):
    rows = torch.from_numpy(rng.normal(size=(5000, 17)).astype(np.float32))
    held = sums_.held_out(rows)
    order = torch.from_numpy(rng.permutation(5000))
    assert torch.equal(sums_.held_out(rows[order]), held[order])
    assert torch.equal(torch.cat([sums_.held_out(p) for p in rows.split(7)]), held)
    assert held.double().mean() == pytest.approx(0.1, abs=0.02)


def test_level_gives_every_class_scores_of_one_size_and_leaves_their_order_of_rows():
    torch.manual_seed(0)
    sizes = [200, 50, 8]
    columns = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    phi = torch.randint(0, 50, (len(columns), 12)).double() + 40 * torch.eye(12).double()[columns]
    held = torch.arange(len(columns)) % 10 == 0
    sums = sums_.update(sums_.empty(12, 3), [(phi, columns, held)])
    plain = ridge.fit(sums).solution
    level = ridge.balance(plain)
    sizes_of = (phi @ level.values).square().mean(dim=0).sqrt()
    assert torch.allclose(sizes_of, sizes_of.mean().expand(3))
    assert (phi @ plain.values).square().mean(dim=0).sqrt().std() > 0.05  # it was needed
    assert torch.equal((phi @ plain.values).argsort(dim=0), (phi @ level.values).argsort(dim=0))
    assert level.lam == plain.lam
    before, after = plain.held_out_scores, level.held_out_scores
    assert before is not None
    assert after is not None
    again = choice.evaluate_on(
        sums.held.dense(), solve([sums.learned], plain.lam) * (level.values / plain.values)[0]
    )
    assert torch.allclose(after.score_squares, again.score_squares)
    assert torch.allclose(after.score_sums, again.score_sums)


@pytest.mark.parametrize("n_rows", [1, 7, 40])
def test_few_rows_are_solved_in_the_space_that_they_span(rng, n_rows):
    phi = torch.from_numpy(rng.integers(0, 65536, (n_rows, 90)).astype(np.float64))
    phi = phi[torch.arange(n_rows) * 2 // 3]  # rows that repeat lower the rank
    classes = torch.arange(n_rows) % 3
    sums = sums_.update(sums_.empty(90, 3), [(phi, classes, torch.arange(n_rows) % 5 == 4)])
    dense, small = ridge.fit(sums).solution, ridge.fit(sums, n_rows=n_rows).solution
    assert small.lam == dense.lam
    assert torch.allclose(small.values, dense.values, rtol=0, atol=1e-9 * dense.values.abs().max())
    if dense.held_out_scores is not None:
        assert torch.equal(small.held_out_scores.total, sums.held.total)
        assert small.held_out_scores.squared_error == pytest.approx(
            dense.held_out_scores.squared_error, rel=1e-6
        )


def test_rows_that_are_all_held_out_are_solved_too(rng):
    phi = torch.from_numpy(rng.integers(0, 65536, (4, 30)).astype(np.float64))
    sums = sums_.update(sums_.empty(30, 2), [(phi, torch.arange(4) % 2, torch.ones(4) > 0)])
    dense, small = ridge.fit(sums).solution, ridge.fit(sums, n_rows=4).solution
    assert small.held_out_scores is None
    assert torch.allclose(small.values, dense.values, rtol=0, atol=1e-9 * dense.values.abs().max())
