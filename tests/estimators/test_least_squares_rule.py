"""Rule `least_squares`: sums that are exact whatever happens to rows, and errors without trace."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import fit_keys
from dkvb.bottleneck import Batch
from dkvb.bottleneck.assignment import LEVELS
from dkvb.rules import LeastSquares
from dkvb.rules.least_squares import ridge

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


def rule_with(
    rows=(), class_index=None, *, stored=False, n_classes=4, read_temperature=0.8, keys=KEYS
):
    """A rule that has learned some rows of X, with classes of Y unless given."""
    rule = LeastSquares(read_temperature=read_temperature, store_samples=stored).start(keys)
    return learn(rule, rows, class_index, n_classes)


def learn(rule, rows, class_index=None, n_classes=4):
    class_index = torch.as_tensor(Y[rows] if class_index is None else class_index)
    if not len(rows):
        rows, class_index = np.arange(0), torch.zeros(0, dtype=torch.int64)
    return rule.learn(Batch(rule.keys_, X[rows]), class_index, n_classes)


def unlearn(rule, rows):
    return rule.unlearn(Batch(rule.keys_, X[rows]), torch.as_tensor(Y[rows]))


def scores(rule, rows=X):
    return rule.scores(Batch(rule.keys_, rows))


def same_bits(first, second):
    ours, theirs = first.state_tensors(), second.state_tensors()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


def same_state(rule):
    """A function that says whether the state of a rule is still the same object."""
    before = rule.state_
    return lambda: rule.state_ is before


orders = st.permutations(range(len(X))).map(np.array)


@pytest.mark.parametrize("stored", [False, True])
@settings(max_examples=20)
@given(order=orders, cuts=st.sets(st.integers(1, len(X) - 1), max_size=5))
def test_any_order_and_batching_give_the_same_bits(stored, order, cuts):
    rule = rule_with(stored=stored)
    for rows in np.split(order, sorted(cuts)):
        rule = learn(rule, rows)
    whole = rule_with(np.arange(len(X)), stored=stored)
    assert same_bits(rule, whole)
    assert torch.equal(scores(rule), scores(whole))


@pytest.mark.parametrize("stored", [False, True])
@settings(max_examples=20)
@given(order=orders, cut=st.integers(0, len(X)))
def test_any_split_merges_to_the_same_bits(stored, order, cut):
    first, second = (rule_with(rows, stored=stored) for rows in (order[:cut], order[cut:]))
    first = first.merge(second, torch.arange(4), 4)
    assert same_bits(first, rule_with(np.arange(len(X)), stored=stored))


@pytest.mark.parametrize("stored", [False, True])
@settings(max_examples=20)
@given(order=orders, cut=st.integers(1, len(X) - 1), size=st.integers(1, 40))
def test_what_was_learned_and_unlearned_was_never_seen(stored, order, cut, size):
    rule = rule_with(order, stored=stored)
    for start in range(cut, len(order), size):
        rule, changed = unlearn(rule, order[start : start + size])
        assert changed > 0
    never = rule_with(order[:cut], stored=stored)
    assert same_bits(rule, never)
    assert torch.equal(scores(rule), scores(never))


@settings(max_examples=10)
@given(order=orders, label=st.integers(0, 3))
def test_a_class_dropped_by_its_samples_was_never_seen(order, label):
    rule = rule_with(order, stored=True)
    target = torch.arange(4) - (torch.arange(4) > label).long()
    target[label] = -1
    rule = rule.map_classes(target)
    others = order[Y[order] != label]
    assert same_bits(rule, rule_with(others, target[Y[others]], stored=True, n_classes=3))


def test_a_class_cannot_be_dropped_without_its_rows():
    everything = np.arange(len(X))
    rule = rule_with(everything)
    target = torch.tensor([0, -1, 1, 2])
    with pytest.raises(ValueError, match=r"forget_samples\(X, y\).*store_samples=True"):
        rule.map_classes(target)
    rule, _ = unlearn(rule, np.flatnonzero(Y == 1))
    rule = rule.map_classes(target)  # nothing of it is left
    others = np.flatnonzero(Y != 1)
    assert same_bits(rule, rule_with(others, target[Y[others]], n_classes=3))


@pytest.mark.parametrize("stored", [False, True])
def test_classes_that_are_joined_or_renamed(stored):
    everything = np.arange(len(X))
    rule = rule_with(everything, stored=stored)
    target = torch.tensor([1, 0, 1, 2])
    rule = rule.map_classes(target)
    assert same_bits(rule, rule_with(everything, target[Y], stored=stored, n_classes=3))


def test_merged_classes_may_stand_elsewhere():
    late, early = np.flatnonzero(Y >= 2), np.flatnonzero(Y < 2)
    first = rule_with(early, Y[early], n_classes=2)
    second = rule_with(late, Y[late] - 2, n_classes=2)
    first = first.merge(second, torch.tensor([2, 3]), 4)
    assert same_bits(first, rule_with(np.arange(len(X))))


NEVER = {
    "another row": lambda: (np.full((1, X.shape[1]), 5.0, dtype=np.float32), [0]),
    "too often": lambda: (X[[3, 3]], Y[[3, 3]]),
    "another class": lambda: (X[[3]], [(Y[3] + 1) % 4]),
}


@pytest.mark.parametrize("what", NEVER)
def test_samples_know_what_was_never_learned(what):
    rule = rule_with(np.arange(len(X)), stored=True)
    before = same_state(rule)
    rows, class_index = NEVER[what]()
    with pytest.raises(ValueError, match=r"rows that were learned.*nothing was changed"):
        rule.unlearn(Batch(KEYS, rows), torch.as_tensor(np.array(class_index)))
    assert before()


def test_sums_know_some_of_it():
    rule = rule_with(np.arange(10))
    before = same_state(rule)
    for rows in ([3] * 11, [3, 50, 51]):
        with pytest.raises(ValueError, match="rows that were learned"):
            unlearn(rule, rows)
        assert before()


def test_sums_go_on_where_a_float_ends(monkeypatch):
    """With high limbs: the same in any order, the same solution, and back again without them."""
    rule = rule_with(np.arange(50))
    plain = rule.merge(rule_with(np.arange(50, 80)), torch.arange(4), 4)
    monkeypatch.setattr("dkvb.rules.least_squares.sums.LIMB", 2.0**34)
    first, second = rule_with(np.arange(50)), rule_with(np.arange(50, 80))
    both = first.merge(second, torch.arange(4), 4)
    assert both.state_.sums.learned.gram_high is not None
    assert same_bits(both, second.merge(first, torch.arange(4), 4))
    assert same_bits(both, rule_with(np.arange(80)))
    assert same_bits(unlearn(both, np.arange(50, 80))[0], first)
    batch = Batch(KEYS, X[:20])
    assert torch.equal(both.scores(batch), plain.scores(batch))
    assert same_bits(unlearn(both, np.arange(80))[0], rule_with())


def test_merge_refuses_what_it_cannot_add():
    rule = rule_with(np.arange(50), stored=True)
    before = same_state(rule)
    with pytest.raises(ValueError, match="store_samples"):
        rule.merge(rule_with(np.arange(50)), torch.arange(4), 4)
    with pytest.raises(ValueError, match=r"read_temperature 0\.8"):
        rule.merge(rule_with(np.arange(50), stored=True, read_temperature=0.5), torch.arange(4), 4)
    assert before()
    bare = rule_with(np.arange(50, 100)).merge(rule, torch.arange(4), 4)
    assert same_bits(bare, rule_with(np.arange(len(X))))


def test_scores_solve_the_ridge_problem():
    rule = rule_with(np.arange(len(X)), n_classes=5)
    phi = rule.assignment_(torch.from_numpy(X)).numpy() / LEVELS
    gram = phi.T @ phi
    system = gram + rule.solution().lam * np.trace(gram) / len(gram) * np.eye(len(gram))
    expected = phi @ np.linalg.solve(system, phi.T @ np.eye(4)[Y])
    found = scores(rule).numpy()
    assert np.allclose(found[:, :4], expected)
    assert (found[:, 4] == -np.inf).all()  # declared, never seen
    assert (found.argmax(axis=1) == Y).mean() > 0.95
    evidence = rule.evidence(Batch(KEYS, X[:7]))
    assert np.allclose(evidence.contributions.sum(dim=1)[:, :4], found[:7, :4])
    assert torch.equal(evidence.codes, KEYS.codes(X[:7]).long())


def test_probabilities_are_no_surer_than_right(rng):
    """Classes that overlap: the mean of the highest probability is about the accuracy."""
    width, n = 12, 6000
    columns = torch.from_numpy(rng.integers(4, size=n))
    rows = rng.normal(size=(n, width)).astype(np.float32)
    rows[np.arange(n), columns] += 2.0
    keys = fit_keys(
        rows[:1000], preset="paper", n_codebooks=20, n_pairs=16, key_dim=6, method="lloyd"
    )
    rule = rule_with(keys=keys).learn(Batch(keys, rows[:4000]), columns[:4000], 4)
    logits = scores(rule, rows[4000:]) / rule.softmax_temperature()
    share, found = logits.softmax(dim=1).max(dim=1)
    accuracy = (found == columns[4000:]).double().mean()
    assert 0.6 < accuracy < 0.95
    assert share.mean() == pytest.approx(float(accuracy), abs=0.07)


def test_usage_counts_nearest_keys():
    rule = rule_with(np.arange(len(X)))
    codes = KEYS.codes(X).long()
    expected = torch.stack([codes[:, book].bincount(minlength=8) for book in range(6)])
    assert torch.equal(rule.usage(), expected)
    assert torch.equal(rule_with(np.arange(len(X)), stored=True).usage(), expected)


def test_codes_are_as_good_as_embeddings():
    rule = rule_with(np.arange(len(X)))
    batch = Batch(KEYS, X)
    assert batch.codes.shape == (len(X), 6)
    again = rule_with().learn(batch, torch.from_numpy(Y), 4)
    assert same_bits(again, rule)
    assert torch.equal(again.scores(batch), scores(rule))


def test_samples_are_stored_in_half_precision_and_no_order():
    rule = rule_with(np.arange(len(X))[::-1].copy(), stored=True)
    samples = rule.state_.samples
    assert samples.rows.dtype == torch.float16
    assert samples.rows.shape == (len(X), KEYS.projection.width)
    assert (samples.hashes.diff() >= 0).all()
    assert not any(name.startswith("sample") for name in rule_with().state_tensors())


def test_solved_once_and_only_when_asked():
    rule = rule_with(np.arange(50))
    assert "balanced" not in vars(rule.state_)
    scores(rule)
    solution = rule.state_.balanced
    scores(rule)
    assert rule.state_.balanced is solution
    rule = learn(rule, [60])
    assert "balanced" not in vars(rule.state_)
    assert rule.state_.balanced is not solution


def test_what_is_written_is_solved_where_that_is_cheap(monkeypatch):
    rule = rule_with(np.arange(50))
    again = LeastSquares().from_state(rule.to_state(), KEYS, 4)
    monkeypatch.setattr(ridge, "fit", None)  # predictions of what was read solve nothing
    assert torch.equal(scores(again), scores(rule))
    monkeypatch.setattr("dkvb.rules.least_squares.rule._CHEAP", 0)
    assert rule_with(np.arange(50)).to_state().facts["solved"] == []


def test_frozen_and_pickled_copies_score_alike():
    rule = rule_with(np.arange(len(X)), stored=True)
    frozen = rule.freeze()
    for twin in (frozen, pickle.loads(pickle.dumps(frozen)), pickle.loads(pickle.dumps(rule))):
        assert torch.equal(scores(twin), scores(rule))
        assert twin.softmax_temperature() == rule.softmax_temperature()
        assert torch.equal(twin.usage(), rule.usage())
    assert frozen.state_.sums.learned.gram.numel() == 0
    assert frozen.state_.samples is None
    assert rule.state_.sums.learned.gram.numel() > 0


def test_blocks_of_rows_change_nothing(monkeypatch):
    whole = rule_with(np.arange(len(X)), stored=True)
    monkeypatch.setattr("dkvb.rules.least_squares.rule._ELEMENTS", {"cpu": 48 * 7})
    parts = rule_with(np.arange(len(X)), stored=True)
    assert same_bits(parts, whole)
    assert torch.allclose(scores(parts), scores(whole), rtol=1e-12, atol=1e-12)
    parts = parts.map_classes(torch.tensor([-1, 0, 1, 2]))
    kept = np.flatnonzero(Y > 0)
    assert same_bits(parts, rule_with(kept, Y[kept] - 1, stored=True, n_classes=3))
