"""Rule `least_squares`: sums that are exact whatever happens to rows, and errors without trace."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck.assignment import LEVELS
from dkvb.rules.base import RULES

from .settings import blobs

X, Y = blobs(4, a_class=25)
KEYS = fit_keys(
    blobs(6, seed=7)[0],
    n_codebooks=6,
    n_pairs=8,
    key_dim=3,
    method="lloyd",
    epochs=2,
    conditioning="half-whitened",
)


def rule_with(rows=(), columns=None, *, ledger=False, n_columns=4, temperature=0.8, keys=KEYS):
    """A rule that has learned some rows of X, with columns of Y unless given."""
    classifier = BottleneckClassifier(
        rule="least_squares", ledger=ledger, temperature=temperature, prior="uniform"
    )
    rule = RULES["least_squares"](classifier)
    rule.classifier = classifier  # which a rule itself does not keep alive
    rule.start(keys)
    rule.grow(n_columns)
    if len(rows):
        learn(rule, rows, columns)
    return rule


def learn(rule, rows, columns=None, sign=1):
    columns = torch.as_tensor(Y[rows] if columns is None else columns)
    change = rule.learn if sign > 0 else rule.unlearn
    return change(X[rows], columns)


def same_bits(first, second):
    ours, theirs = first.state_tensors(), second.state_tensors()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


orders = st.permutations(range(len(X))).map(np.array)


@pytest.mark.parametrize("ledger", [False, True])
@settings(max_examples=20)
@given(order=orders, cuts=st.sets(st.integers(1, len(X) - 1), max_size=5))
def test_any_order_and_batching_give_the_same_bits(ledger, order, cuts):
    rule = rule_with(ledger=ledger)
    for rows in np.split(order, sorted(cuts)):
        learn(rule, rows)
    whole = rule_with(np.arange(len(X)), ledger=ledger)
    assert same_bits(rule, whole)
    assert torch.equal(rule.scores(X), whole.scores(X))


@pytest.mark.parametrize("ledger", [False, True])
@settings(max_examples=20)
@given(order=orders, cut=st.integers(0, len(X)))
def test_any_split_merges_to_the_same_bits(ledger, order, cut):
    first, second = (rule_with(rows, ledger=ledger) for rows in (order[:cut], order[cut:]))
    first.merge(second, torch.arange(4))
    assert same_bits(first, rule_with(np.arange(len(X)), ledger=ledger))


@pytest.mark.parametrize("ledger", [False, True])
@settings(max_examples=20)
@given(order=orders, cut=st.integers(1, len(X) - 1), size=st.integers(1, 40))
def test_what_was_learned_and_unlearned_was_never_seen(ledger, order, cut, size):
    rule = rule_with(order, ledger=ledger)
    for start in range(cut, len(order), size):
        assert learn(rule, order[start : start + size], sign=-1) > 0
    never = rule_with(order[:cut], ledger=ledger)
    assert same_bits(rule, never)
    assert torch.equal(rule.scores(X), never.scores(X))


@settings(max_examples=10)
@given(order=orders, label=st.integers(0, 3))
def test_a_class_dropped_by_the_ledger_was_never_seen(order, label):
    rule = rule_with(order, ledger=True)
    target = torch.arange(4) - (torch.arange(4) > label).long()
    target[label] = -1
    rule.move_columns(target)
    others = order[Y[order] != label]
    assert same_bits(rule, rule_with(others, target[Y[others]], ledger=True, n_columns=3))


def test_a_class_cannot_be_dropped_without_its_rows():
    everything = np.arange(len(X))
    rule = rule_with(everything)
    target = torch.tensor([0, -1, 1, 2])
    before = rule.state
    with pytest.raises(ValueError, match=r"forget_samples\(X, y\).*ledger=True"):
        rule.move_columns(target)
    assert rule.state is before
    learn(rule, np.flatnonzero(Y == 1), sign=-1)
    rule.move_columns(target)  # nothing of it is left
    others = np.flatnonzero(Y != 1)
    assert same_bits(rule, rule_with(others, target[Y[others]], n_columns=3))


@pytest.mark.parametrize("ledger", [False, True])
def test_classes_that_are_joined_or_renamed(ledger):
    everything = np.arange(len(X))
    rule = rule_with(everything, ledger=ledger)
    target = torch.tensor([1, 0, 1, 2])
    rule.move_columns(target)
    assert same_bits(rule, rule_with(everything, target[Y], ledger=ledger, n_columns=3))


def test_merged_columns_may_stand_elsewhere():
    late, early = np.flatnonzero(Y >= 2), np.flatnonzero(Y < 2)
    first = rule_with(early, Y[early], n_columns=2)
    second = rule_with(late, Y[late] - 2, n_columns=2)
    first.grow(4)
    first.merge(second, torch.tensor([2, 3]))
    assert same_bits(first, rule_with(np.arange(len(X))))


NEVER = {
    "another row": lambda: (np.full((1, X.shape[1]), 5.0, dtype=np.float32), [0]),
    "too often": lambda: (X[[3, 3]], Y[[3, 3]]),
    "another class": lambda: (X[[3]], [(Y[3] + 1) % 4]),
}


@pytest.mark.parametrize("what", NEVER)
def test_the_ledger_knows_what_was_never_learned(what):
    rule = rule_with(np.arange(len(X)), ledger=True)
    before = rule.state
    rows, columns = NEVER[what]()
    with pytest.raises(ValueError, match=r"rows that were learned.*nothing was changed"):
        rule.unlearn(rows, torch.as_tensor(np.array(columns)))
    assert rule.state is before


def test_sums_know_some_of_it():
    rule = rule_with(np.arange(10))
    before = rule.state
    for rows in ([3] * 11, [3, 50, 51]):
        with pytest.raises(ValueError, match="rows that were learned"):
            learn(rule, rows, sign=-1)
        assert rule.state is before


def test_sums_that_could_not_be_exact_are_refused(monkeypatch):
    rule = rule_with(np.arange(50))
    other = rule_with(np.arange(50))
    before = rule.state
    largest = max(float(m.diagonal().max()) for m in (before.sums.learned, before.sums.held))
    monkeypatch.setattr("dkvb.rules.least_squares.ridge.EXACT", 1.5 * largest)
    learn(rule_with(), np.arange(50))
    for change in (lambda: learn(rule, np.arange(50)), lambda: rule.merge(other, torch.arange(4))):
        with pytest.raises(ValueError, match="2\\*\\*53"):
            change()
        assert rule.state is before


def test_merge_refuses_what_it_cannot_add():
    rule = rule_with(np.arange(50), ledger=True)
    before = rule.state
    with pytest.raises(ValueError, match="ledger"):
        rule.merge(rule_with(np.arange(50)), torch.arange(4))
    with pytest.raises(ValueError, match=r"temperature 0\.8"):
        rule.merge(rule_with(np.arange(50), ledger=True, temperature=0.5), torch.arange(4))
    assert rule.state is before
    bare = rule_with(np.arange(50, 100))
    bare.merge(rule, torch.arange(4))
    assert same_bits(bare, rule_with(np.arange(len(X))))


def test_scores_solve_the_ridge_problem():
    rule = rule_with(np.arange(len(X)), n_columns=5)
    phi = rule.reads(torch.from_numpy(X)).numpy() / LEVELS
    gram = phi.T @ phi
    system = gram + rule.ridge * np.trace(gram) / len(gram) * np.eye(len(gram))
    expected = phi @ np.linalg.solve(system, phi.T @ np.eye(4)[Y])
    scores = rule.scores(X).numpy()
    assert np.allclose(scores[:, :4], expected)
    assert (scores[:, 4] == -np.inf).all()  # declared, never seen
    assert (scores.argmax(axis=1) == Y).mean() > 0.95
    evidence = rule.evidence(X[:7])
    assert np.allclose(evidence.contributions.sum(dim=1)[:, :4], scores[:7, :4])
    assert torch.equal(evidence.codes, KEYS.snap(X[:7]).nearest.long())


def test_probabilities_are_no_surer_than_right(rng):
    """Classes that overlap: the mean of the highest probability is about the accuracy."""
    width, n = 12, 6000
    columns = torch.from_numpy(rng.integers(4, size=n))
    rows = rng.normal(size=(n, width)).astype(np.float32)
    rows[np.arange(n), columns] += 2.0
    keys = fit_keys(
        rows[:1000], preset="paper", n_codebooks=20, n_pairs=16, key_dim=6, method="lloyd"
    )
    rule = rule_with(keys=keys)
    rule.learn(rows[:4000], columns[:4000])
    share, found = (rule.scores(rows[4000:]) / rule.temperature()).softmax(dim=1).max(dim=1)
    accuracy = (found == columns[4000:]).double().mean()
    assert 0.6 < accuracy < 0.95
    assert share.mean() == pytest.approx(float(accuracy), abs=0.07)


def test_usage_counts_nearest_keys():
    rule = rule_with(np.arange(len(X)))
    codes = KEYS.snap(X).nearest.long()
    expected = torch.stack([codes[:, book].bincount(minlength=8) for book in range(6)])
    assert torch.equal(rule.usage(), expected)
    assert torch.equal(rule_with(np.arange(len(X)), ledger=True).usage(), expected)


def test_codes_are_as_good_as_embeddings():
    rule = rule_with(np.arange(len(X)))
    codes = KEYS.snap(X)
    again = rule_with()
    again.learn(codes, torch.from_numpy(Y))
    assert same_bits(again, rule)
    assert torch.equal(again.scores(codes), rule.scores(X))


def test_ledger_keeps_rows_in_half_precision_and_no_order():
    rule = rule_with(np.arange(len(X))[::-1].copy(), ledger=True)
    ledger = rule.state.ledger
    assert ledger.rows.dtype == torch.float16
    assert ledger.rows.shape == (len(X), KEYS.projection.width)
    assert (ledger.hashes.diff() >= 0).all()
    assert not any(name.startswith("ledger") for name in rule_with().state_tensors())


def test_solved_once_and_only_when_asked():
    rule = rule_with(np.arange(50))
    assert "uniform" not in vars(rule.state)
    rule.scores(X)
    solution = rule.state.uniform
    rule.scores(X)
    assert rule.state.uniform is solution
    learn(rule, [60])
    assert "uniform" not in vars(rule.state)
    assert rule.state.uniform is not solution


def test_sealed_and_pickled_copies_score_alike():
    rule = rule_with(np.arange(len(X)), ledger=True)
    sealed = rule.sealed()
    for twin in (sealed, pickle.loads(pickle.dumps(sealed)), pickle.loads(pickle.dumps(rule))):
        assert torch.equal(twin.scores(X), rule.scores(X))
        assert twin.temperature() == rule.temperature()
        assert torch.equal(twin.usage(), rule.usage())
    assert sealed.state.sums.learned.gram.numel() == 0
    assert sealed.state.ledger is None
    assert rule.state.sums.learned.gram.numel() > 0


def test_blocks_of_rows_change_nothing(monkeypatch):
    whole = rule_with(np.arange(len(X)), ledger=True)
    monkeypatch.setattr("dkvb.rules.least_squares.rule._ELEMENTS", {"cpu": 48 * 7})
    parts = rule_with(np.arange(len(X)), ledger=True)
    assert same_bits(parts, whole)
    assert torch.allclose(parts.scores(X), whole.scores(X), rtol=1e-12, atol=1e-12)
    parts.move_columns(torch.tensor([-1, 0, 1, 2]))
    kept = np.flatnonzero(Y > 0)
    assert same_bits(parts, rule_with(kept, Y[kept] - 1, ledger=True, n_columns=3))
