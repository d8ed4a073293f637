"""Rule `least_squares` with many pairs: solutions that follow new rows, against a full solve."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import fit_keys
from dkvb.bottleneck import Batch
from dkvb.rules import LeastSquares
from dkvb.rules.least_squares import choice, ridge, subspace, sums
from dkvb.rules.least_squares.factor import SpanFactor, cholesky, factorise

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(6, 8)).astype(np.float32)
Y = np.arange(240) % 6
X = (CENTRES[Y] + 0.5 * RNG.normal(size=(240, 8))).astype(np.float32)
KEYS = fit_keys(X[:100], n_codebooks=12, n_pairs=16, key_dim=4, method="lloyd", epochs=2)
M = 12 * 16


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """The problem counts as a large one: up to M // 4 = 48 rows wait."""
    monkeypatch.setattr(ridge, "LARGE", 100)
    monkeypatch.setattr(sums, "STRIPE", 50)


def learn(rule, rows, n_classes=6):
    rows = np.asarray(rows, dtype=np.int64)
    return rule.learn(Batch(KEYS, X[rows]), torch.from_numpy(Y[rows]), n_classes)


def learned(rows, n_classes=6, **params):
    return learn(LeastSquares(**params).start(KEYS), rows, n_classes)


def full_solve(rule, lam):
    """The obvious solution for the same λ."""
    both = [part.dense() for part in (rule.state_.sums.learned, rule.state_.sums.held)]
    gram, cross = both[0].gram + both[1].gram, both[0].cross + both[1].cross
    system = gram + lam * gram.trace() / M * torch.eye(M, dtype=torch.float64)
    values = torch.linalg.solve(system, cross)
    return values, (values * (gram @ values)).sum(dim=0)


def check_solution(rule):
    found = rule.state_.unweighted
    values, squares = full_solve(rule, found.lam)
    assert float((found.values - values).norm()) <= 1e-6 * float(values.norm())
    assert torch.allclose(found.sum_squares, squares, rtol=1e-6)
    sizes = rule.state_.balanced.sum_squares
    assert torch.allclose(sizes[sizes > 0], sizes[sizes > 0].mean(), rtol=1e-9)


def same_sums(first, second):
    ours, theirs = first.state_tensors(), second.state_tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def scores(rule):
    return rule.scores(Batch(KEYS, X))


@settings(max_examples=25)
@given(data=st.data())
def test_learning_in_any_batches_solves_the_problem_of_all_rows(data):
    """With solutions, sums and copies asked for in between, or not; classes come later."""
    order = np.random.default_rng(data.draw(st.integers(0, 999))).permutation(len(X))
    first = data.draw(st.sampled_from([1, 20, 120, 170]))
    rule, n_classes, place = None, 0, 0
    for _ in range(data.draw(st.integers(1, 6))):
        size = first if rule is None else data.draw(st.sampled_from([0, 1, 2, 20, 30, 60]))
        rows = order[place : place + size]
        place += size
        n_classes = max(n_classes, int(Y[order[:place]].max(initial=0)) + 1)
        rule = learned(rows, n_classes) if rule is None else learn(rule, rows, n_classes)
        action = data.draw(st.sampled_from(["nothing", "solve", "solve", "sums", "pickle"]))
        if action == "solve":
            scores(rule)
        elif action == "sums":
            rule.state_tensors()
        elif action == "pickle":
            rule = pickle.loads(pickle.dumps(rule))
    check_solution(rule)
    assert same_sums(rule, learned(order[:place], n_classes))
    assert torch.equal(rule.state_.total, torch.from_numpy(Y[order[:place]]).bincount().double())


def test_rows_wait_and_nothing_large_is_copied():
    rule = learned(np.arange(200))
    scores(rule)
    before = rule.state_
    after = learn(rule, [200]).state_
    assert after.summed.learned.gram is before.summed.learned.gram
    assert after.summed.held.gram is before.summed.held.gram
    assert after.earlier.fit is before.fit.fit
    assert len(after.waiting) == 1


def test_a_state_stays_as_it_is_when_others_learn_from_it():
    rule = learned(np.arange(150))
    expected = scores(rule).clone()
    one, other = learn(rule, np.arange(150, 160)), learn(rule, np.arange(200, 230))
    for twin in (one, other, learn(one, [3])):
        check_solution(twin)
    assert torch.equal(rule.scores(Batch(KEYS, X)), expected)
    assert same_sums(rule, learned(np.arange(150)))
    assert same_sums(other, learned(np.r_[:150, 200:230]))


def test_lambda_is_kept_until_rows_have_doubled_and_chosen_again_by_tune_and_after_forgetting():
    rule = learned(np.arange(100))
    penalty = rule.state_.fit.choice.penalty
    for rows in (np.arange(100, 140), np.arange(140, 199)):  # the second batch is too large to wait
        rule = learn(rule, rows)
        assert rule.state_.fit.choice.penalty == penalty
        assert rule.state_.unweighted.lam == pytest.approx(penalty * M / rule.state_.sums.trace)
    again = learn(rule, [199])
    assert again.state_.fit.choice.n_rows == 200
    assert again.state_.unweighted.lam in choice.GRID
    fresh = learned(np.arange(199))
    assert torch.equal(scores(rule.tune()), scores(fresh))
    less, _ = rule.unlearn(Batch(KEYS, X[150:199]), torch.from_numpy(Y[150:199]))
    assert torch.equal(scores(less), scores(learned(np.arange(150))))


def test_rows_that_wait_are_unlearned_merged_and_mapped():
    rule = learned(np.arange(150))
    scores(rule)
    rule = learn(rule, np.arange(150, 170))
    less, changed = rule.unlearn(Batch(KEYS, X[140:160]), torch.from_numpy(Y[140:160]))
    assert changed > 0
    assert same_sums(less, learned(np.r_[:140, 160:170]))
    merged = rule.merge(learn(learned([]), np.arange(170, 190)), torch.arange(6), 6)
    assert same_sums(merged, learned(np.arange(190)))
    check_solution(merged)
    target = torch.tensor([5, 4, 3, 2, 1, 0])
    mapped = rule.map_classes(target)
    assert torch.equal(mapped.state_.total, rule.state_.total.flip(0))
    check_solution(mapped)


def test_stored_samples_forget_a_class_after_rows_that_wait():
    rule = learned(np.arange(150), store_samples=True)
    scores(rule)
    rule = learn(rule, np.arange(150, 170)).map_classes(torch.tensor([0, 1, -1, 2, 3, 4]))
    kept = np.flatnonzero(Y[:170] != 2)
    fresh = LeastSquares(store_samples=True).start(KEYS)
    class_index = torch.from_numpy(Y[kept] - (Y[kept] > 2))
    assert same_sums(rule, fresh.learn(Batch(KEYS, X[kept]), class_index, 5))


@pytest.mark.parametrize("solved", [False, True])
def test_saved_in_the_middle(solved):
    rule = learned(np.arange(150))
    scores(rule)
    rule = learn(rule, np.arange(150, 170))
    if solved:
        scores(rule)
    again = LeastSquares().from_state(rule.to_state(), KEYS, 6)
    assert same_sums(again, rule)
    assert torch.equal(scores(again), scores(rule))
    assert again.softmax_temperature() == rule.softmax_temperature()
    ours, theirs = (learn(each, np.arange(170, 180)) for each in (rule, again))
    assert ours.state_.choice.penalty == theirs.state_.choice.penalty
    assert torch.allclose(scores(ours), scores(theirs), rtol=1e-8, atol=1e-8)
    assert ours.softmax_temperature() == pytest.approx(theirs.softmax_temperature())


@pytest.mark.parametrize("others", [0, 40])  # with which the rows are too many to wait
def test_a_new_class_after_the_choice(others):
    rule = learned(np.flatnonzero(Y < 5), 5)
    temperature = rule.softmax_temperature()
    rule = learn(rule, np.r_[np.flatnonzero(Y == 5)[:20], :others])
    assert (rule.state_.earlier is None) == (others > 0)
    check_solution(rule)
    assert rule.softmax_temperature() == pytest.approx(temperature, rel=0.5)
    assert (scores(rule)[Y == 5].argmax(dim=1) == 5).double().mean() > 0.9
    state = rule.to_state()
    again = LeastSquares().from_state(state, KEYS, 6)
    assert torch.equal(scores(again), scores(rule))


def test_copies_leave_factors_behind():
    rule = learned(np.arange(200))
    scores(rule)
    rule = learn(rule, np.arange(200, 220))
    scores(rule)
    twin = pickle.loads(pickle.dumps(rule))
    assert "fit" not in vars(twin.state_)
    assert twin.state_.earlier is None
    assert torch.equal(scores(twin), scores(rule))
    frozen = rule.freeze()
    assert frozen.state_.earlier is None
    assert "fit" not in vars(frozen.state_)
    assert frozen.state_.sums.learned.gram.numel() == 0
    assert torch.equal(scores(frozen), scores(rule))


def test_declared_classes_and_no_rows():
    rule = learned([], 3)
    assert (scores(rule) == -torch.inf).all()
    rule = learn(rule, [], 3)
    rule = learn(learn(rule, [0, 6]), [])
    assert (scores(rule).argmax(dim=1) == 0).all()


# ------------------------------------------------------------------------------- factors and λ
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 49, 50, 51, 130])
def test_factor_in_stripes(n, dtype):
    generator = torch.Generator().manual_seed(n)
    root = torch.rand((2 * n, n), generator=generator, dtype=torch.float64)
    system = root.T @ root + torch.eye(n, dtype=torch.float64)
    packed = torch.cat([system[a : a + 50, a:].flatten() for a in range(0, n, 50)])
    right = torch.rand((n, 3), generator=generator, dtype=torch.float64)
    found = cholesky(packed.to(dtype, copy=True), n).solve(right)
    assert found.dtype == dtype
    tolerance = 1e-10 if dtype == torch.float64 else 1e-3
    assert torch.allclose(system @ found.double(), right, rtol=0, atol=tolerance)
    assert cholesky(-packed, n) is None
    factor, penalty = factorise(packed, n, 2.5)
    assert penalty == 2.5
    eye = torch.eye(n, dtype=torch.float64)
    assert torch.allclose((system + 2.5 * eye) @ factor.solve(right), right)


def test_factor_in_the_span_of_few_rows():
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.rand((20, 4), generator=generator, dtype=torch.float64))[0]
    inner = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0]).double())
    eye = torch.eye(20, dtype=torch.float64)
    factor = SpanFactor(basis, torch.linalg.cholesky(inner + 0.5 * eye[:4, :4]), 0.5)
    right = torch.rand((20, 3), generator=generator, dtype=torch.float64)
    system = basis @ inner @ basis.T + 0.5 * eye
    assert torch.allclose(system @ factor.solve(right), right)


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0, 8.0])  # which asks for a larger λ
@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_lambda_chosen_in_a_subspace_is_that_of_all_dimensions(noise, tolerance):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn((600, 20), generator=generator, dtype=torch.float64)
    decay = torch.logspace(0, -2, 20, dtype=torch.float64)[:, None]
    phi = (hidden @ (decay * torch.randn((20, 300), generator=generator).double())).exp()
    noisy = hidden[:, :4] + noise * torch.randn((600, 4), generator=generator)
    held = torch.arange(600) % 10 == 0
    found = sums.update(sums.empty(300, 4), [(phi, noisy.argmax(dim=1), held)])
    unit = found.learned.trace / 300
    parts = found.learned.dense(), found.held.dense()
    exact, scored = choice.choose_lambda(*parts, unit, tolerance=tolerance)
    near = subspace.choose_in_subspace(found.learned, found.held, unit, tolerance=tolerance)
    steps = choice.GRID.index(near[0]) - choice.GRID.index(exact)
    assert steps == 0 if tolerance else abs(steps) <= 1  # the error is flat at its lowest
    assert near[1].squared_error == pytest.approx(scored.squared_error, rel=3e-3)


def test_lambda_with_as_many_classes_as_features():
    generator = torch.Generator().manual_seed(1)
    phi = torch.rand((300, 150), generator=generator, dtype=torch.float64)
    held = torch.arange(300) % 10 == 0
    found = sums.update(sums.empty(150, 40), [(phi, torch.arange(300) % 40, held)])
    unit = found.learned.trace / 150
    exact = choice.choose_lambda(found.learned.dense(), found.held.dense(), unit)
    near = subspace.choose_in_subspace(found.learned, found.held, unit)
    assert near[0] == exact[0]
