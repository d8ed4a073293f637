"""Forgetting, relabelling, merging, growing and freezing: exact, or refused with a reason."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from dkvb import BottleneckClassifier, fit_keys, rules

from .settings import blobs, bottleneck

SUMMABLE = {
    "counts": {"rule": "counts"},
    "least_squares": {"rule": "least_squares"},
    "least_squares with samples": {"rule": "least_squares", "store_samples": True},
}
every_sum = pytest.mark.parametrize("how", SUMMABLE)
NAMES = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])


@cache
def keys():
    return fit_keys(
        blobs(6, seed=7)[0], preset="paper", n_codebooks=8, n_pairs=16, key_dim=3, random_state=1
    )


def model(how="counts", **overrides):
    return bottleneck(keys(), **{**SUMMABLE.get(how, {"rule": how}), **overrides})


def rows(n=60, n_classes=4, seed=0):
    """Rows of named classes, some of them twice or more often."""
    X, y = blobs(n_classes, a_class=n, seed=seed)
    chosen = np.random.default_rng(seed).integers(len(X), size=n)
    return X[chosen], NAMES[y[chosen]]


def same_model(a, b):
    """Equal to the last bit, in what was learned and in what follows from it."""
    ours, theirs = a.state_tensors(), b.state_tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert a.classes_.tolist() == b.classes_.tolist()
    assert a.classes_.dtype == b.classes_.dtype
    if len(a.classes_):
        queries = blobs(6, a_class=3, seed=5)[0]
        # Sums are equal; a ridge solution's rounding depends on the order of its columns.
        tolerance = 1e-8 if a.rule_.name == "least_squares" else 0.0
        for method in ("decision_function", "predict_proba"):
            one, other = getattr(a, method)(queries), getattr(b, method)(queries)
            assert np.allclose(one, other, rtol=tolerance, atol=tolerance)
    return True


def unchanged(classifier, call, error, match):
    """The call raises and leaves every object where it was."""
    before = dict(vars(classifier))
    with pytest.raises(error, match=match):
        call()
    assert vars(classifier) == before
    return True


# ------------------------------------------------------------------ invariants 4 and 5, any data
@every_sum
@settings(max_examples=15)
@given(data=st.data())
def test_any_order_batches_splits_and_merges_give_the_same_model(how, data):
    X, y = rows(data.draw(st.integers(1, 40)), seed=data.draw(st.integers(0, 99)))
    order = np.array(data.draw(st.permutations(range(len(X)))))
    cuts = data.draw(st.sets(st.integers(1, max(1, len(X) - 1)), max_size=4))
    sites = {}
    for chosen in np.split(order, sorted(cuts & set(range(1, len(X))))):
        site = sites.setdefault(data.draw(st.integers(0, 2)), model(how))
        site.partial_fit(X[chosen], y[chosen])
    first, *others = sites.values()
    for other in others:
        first.merge(other)
    assert same_model(first, model(how).partial_fit(X, y))


@every_sum
@settings(max_examples=15)
@given(data=st.data())
def test_forgetting_what_was_learned_restores_the_state(how, data):
    seed = data.draw(st.integers(0, 99))
    X, y = rows(data.draw(st.integers(2, 40)), seed=seed)
    cut = data.draw(st.integers(1, len(X) - 1))
    before = model(how).partial_fit(X[:cut], y[:cut])
    after = pickle.loads(pickle.dumps(before)).partial_fit(X[cut:], y[cut:])
    gone = cut + np.array(data.draw(st.permutations(range(len(X) - cut))))
    for some in np.array_split(gone, data.draw(st.integers(1, 3))):
        if len(some):
            after.forget_samples(X[some], y[some])
    assert same_model(after, before)
    assert sum(record.rows for record in after.audit_) == len(gone)


@pytest.mark.parametrize("how", ["counts", "least_squares with samples"])
@settings(max_examples=15)
@given(data=st.data())
def test_a_model_that_forgot_a_class_equals_one_that_never_saw_it(how, data):
    X, y = rows(data.draw(st.integers(5, 40)), seed=data.draw(st.integers(0, 99)))
    gone = data.draw(st.sampled_from(sorted(set(y))))
    forgot = model(how).partial_fit(X, y).forget(gone)
    assert gone not in forgot.classes_
    kept = y != gone
    if kept.any():
        assert same_model(forgot, model(how).partial_fit(X[kept], y[kept]))
    (record,) = forgot.audit_
    assert (record.operation, record.rows) == ("forget", (~kept).sum())
    assert record.pairs > 0


@every_sum
@settings(max_examples=10)
@given(seed=st.integers(0, 99))
def test_relabelled_rows_were_always_called_so(how, seed):
    X, y = rows(30, seed=seed)
    chosen = np.random.default_rng(seed).random(30) < 0.4
    chosen[0] = True
    new = np.where(y == "ant", "gnu", "ant")  # a label seen for the first time among them
    right = np.where(chosen, new, y)
    corrected = model(how).partial_fit(X, y).relabel(X[chosen], y[chosen], new[chosen])
    assert same_model(corrected, model(how).partial_fit(X, right))
    (record,) = corrected.audit_
    assert (record.operation, record.rows) == ("relabel", chosen.sum())


def test_audit_by_hand():
    X, y = rows(20)
    clf = model().partial_fit(X, y)
    one = keys().codes(X[:1])
    clf.forget_samples(X[:1], y[:1])
    assert clf.audit_[0].pairs == one.numel() == 8
    both = clf.forget_samples(X[1:3], y[1:3]).audit_[1]
    codes = keys().codes(X[1:3])
    assert both.pairs == sum(len(codes[:, c].unique()) for c in range(8))
    with pytest.raises(AttributeError):
        both.pairs = 0


# ------------------------------------------------------------------------------ what is refused
@every_sum
def test_more_than_was_learned_cannot_be_forgotten(how):
    X, y = rows(20)
    clf = model(how).partial_fit(X, y)
    far, *_ = rows(5, seed=3)
    twice = np.concatenate([X, X]), np.concatenate([y, y])
    assert unchanged(clf, lambda: clf.forget_samples(*twice), ValueError, "nothing was changed")
    assert unchanged(clf, lambda: clf.forget_samples(far + 50, y[:5]), ValueError, "X, y: expected")
    assert unchanged(clf, lambda: clf.forget_samples(X[:1], ["yak"]), ValueError, "'yak'")
    assert unchanged(clf, lambda: clf.relabel(*twice, twice[1]), ValueError, "nothing was changed")
    assert unchanged(clf, lambda: clf.relabel(X[:1], y[:1], [3]), TypeError, "y_new.*string")
    assert unchanged(clf, lambda: clf.forget("yak"), ValueError, "label: .*'yak'")
    assert unchanged(clf, lambda: clf.forget_samples(X[:, :3], y), ValueError, "features")


def test_sgd_refuses_with_the_reason():
    X, y = rows(20)
    clf, other = (model("sgd").partial_fit(X, y) for _ in range(2))
    for call in (
        lambda: clf.forget_samples(X, y),
        lambda: clf.relabel(X, y, y),
        lambda: clf.forget(y[0]),
        lambda: clf.merge(other),
    ):
        assert unchanged(clf, call, ValueError, "'counts' or 'least_squares'.*rule='sgd', whose")


def test_least_squares_forgets_a_class_only_with_stored_samples():
    clf = model("least_squares").partial_fit(*rows(20))
    assert unchanged(
        clf, lambda: clf.forget("ant"), ValueError, "forget_samples|store_samples=True"
    )


def test_merging_needs_the_same_keys_rule_and_kind_of_labels():
    X, y = rows(40)
    clf = model().partial_fit(X, y)
    other_keys = fit_keys(X, preset="paper", n_codebooks=8, n_pairs=16, key_dim=3)
    for other, error, says in (
        (model(), NotFittedError, "not fitted"),
        (BottleneckClassifier(other_keys, rule="counts").fit(X, y), ValueError, "fit keys once"),
        (model("least_squares").fit(X, y), ValueError, "other: expected rule='counts'"),
        (model().fit(X, np.arange(40)), TypeError, "other: expected string labels"),
        (model().fit(X, y).freeze(), ValueError, "inference-only copy"),
        ("a file", TypeError, "other: expected a BottleneckClassifier; got str"),
    ):
        assert unchanged(clf, lambda other=other: clf.merge(other), error, says)


@every_sum
def test_merging_leaves_the_other_alone(how):
    X, y = rows(40)
    one, other = model(how).fit(X[:20], y[:20]), model(how).fit(X[20:], y[20:])
    before = dict(vars(other))
    assert one.merge(other) is one
    assert vars(other) == before


# ------------------------------------------------------------------------- classes that are gone
@every_sum
def test_the_last_row_of_a_class_takes_the_class_along_unless_declared(how):
    X, y = rows(30)
    ants = y == "ant"

    def declared():
        return model(how).partial_fit(X[ants], y[ants], classes=["ant", "yak"])

    clf = declared().partial_fit(X[~ants], y[~ants])
    for label in ("ant", "bee"):
        clf.forget_samples(X[y == label], y[y == label])
    assert clf.classes_.tolist() == ["ant", "cat", "dog", "yak"]
    assert not set(clf.predict(X)) & {"ant", "yak"}
    clf.forget_samples(X[~np.isin(y, ["ant", "bee"])], y[~np.isin(y, ["ant", "bee"])])
    assert clf.classes_.tolist() == ["ant", "yak"]
    with pytest.raises(NotFittedError, match="unlearned"):
        clf.predict(X)
    assert same_model(clf.partial_fit(X, y), declared().partial_fit(X[~ants], y[~ants]))


def test_declaring_some_classes_declares_no_others():
    X, y = rows(30)
    clf = model().partial_fit(X, y).partial_fit(X[:1], y[:1], classes=["yak"])
    for label in np.unique(y):
        rest = y == label
        again = rest & (np.arange(30) == 0)
        clf.forget_samples(X[rest], y[rest])
        if again.any():
            clf.forget_samples(X[again], y[again])
    assert clf.classes_.tolist() == ["yak"]


def test_a_model_that_forgot_everything_can_learn_again():
    X, y = rows(30)
    clf = model().partial_fit(X, y)
    for label in np.unique(y):
        clf.forget(label)
    assert len(clf.classes_) == 0
    with pytest.raises(NotFittedError, match="unlearned"):
        clf.predict_proba(X)
    assert same_model(clf.partial_fit(X, y), model().partial_fit(X, y))


# ---------------------------------------------------------------------------------------- weights
@pytest.mark.parametrize("how", [*SUMMABLE, "sgd"])
def test_whole_weights_repeat_rows(how):
    X, y = rows(20)
    weight = np.random.default_rng(0).integers(0, 4, 20)
    again = np.repeat(np.arange(20), weight)
    weighted = model(how).partial_fit(X, y, sample_weight=weight.astype(float))
    assert same_model(weighted, model(how).partial_fit(X[again], y[again]))


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ([0.5] * 20, "whole numbers.*scale and round"),
        ([-1] * 20, "at least 0"),
        ([np.nan] * 20, "whole numbers"),
        ([1] * 19, "20 numbers"),
        (["1"] * 20, "20 numbers"),
        ([0] * 20, "a row that counts"),
    ],
)
def test_other_weights_are_refused(weight, says):
    X, y = rows(20)
    clf = model().partial_fit(X, y)
    call = lambda: clf.partial_fit(X, y, sample_weight=weight)  # noqa: E731
    assert unchanged(clf, call, ValueError, f"sample_weight: .*{says}")


# --------------------------------------------------------------------------------- keys that grow
def elsewhere(n=80):
    """Rows far from all keys, in two groups."""
    rng = np.random.default_rng(3)
    centres = np.array([[30.0] * 6, [-30.0] * 6], np.float32)
    y = np.arange(n) % 2
    return (centres[y] + 0.3 * rng.normal(size=(n, 6))).astype(np.float32), NAMES[4 + y]


@pytest.mark.parametrize("rule", ["counts", "sgd"])
def test_new_keys_come_where_novelty_is_high(rule):
    X, y = rows(200)
    far, names = elsewhere()
    clf = model(
        rule, **({"learning_rate": 20.0, "epochs": 10} if rule == "sgd" else {})
    ).partial_fit(X, y)
    known = clf.novelty(X)
    scores, usage, selected = clf.decision_function(X), clf.usage_, clf.usage_ > 0
    assert clf.novelty(far).min() == 1.0
    assert clf.grow_keys(far, n_new=12) is clf
    old, new = clf.key_versions_
    assert old is keys()
    assert new is clf.keys_
    assert new.fingerprint != old.fingerprint
    assert new.settings["generation"] == 1
    # Pairs that had learned are where they were, and nothing has been forgotten.
    same = (new.keys[:, :16] == old.keys).all(dim=2).numpy()
    assert same[selected].all()
    assert new.n_pairs == 16 + 12 - (~selected).sum(axis=1).min()
    assert np.array_equal(clf.usage_[:, :16], usage)
    assert not clf.usage_[:, 16:].any()
    assert np.median(clf.novelty(X) - known) <= 0
    if rule == "sgd":  # which searches selected keys only
        assert np.allclose(clf.decision_function(X), scores)
    assert np.median(clf.novelty(far)) < 1.0
    clf.partial_fit(far, names)
    assert clf.score(far, names) == 1.0
    assert clf.score(X, y) > 0.9


def test_dead_keys_are_used_before_new_ones_are_added():
    X, y = rows(200)
    clf = model().partial_fit(X[:2], y[:2])  # at most two keys a codebook are alive
    clf.grow_keys(elsewhere()[0], n_new=3)
    assert clf.keys_.n_pairs == 16
    changed = (clf.keys_.keys != keys().keys).any(dim=2).sum(dim=1)
    assert (changed == 3).all()


def test_growing_where_nothing_is_new_changes_nothing():
    X, y = rows(100)
    clf = model().partial_fit(X, y)
    before = dict(vars(clf))
    clf.grow_keys(elsewhere()[0], above=1.0)
    assert vars(clf) == before
    assert clf.key_versions_ == (keys(),)
    assert unchanged(clf, lambda: clf.grow_keys(X, n_new=0), ValueError, "n_new")
    assert unchanged(clf, lambda: clf.grow_keys(X, above=2), ValueError, "above")
    ridge = model("least_squares").fit(X, y)
    call = lambda: ridge.grow_keys(elsewhere()[0])  # noqa: E731
    assert unchanged(ridge, call, ValueError, "grow_keys: .*'counts' or 'sgd'")


def test_forgetting_across_key_versions():
    X, y = rows(60)
    far, names = elsewhere(40)
    clf = model().partial_fit(X, y)
    old_batch = clf.batch(X)
    clf.grow_keys(far, n_new=4).partial_fit(far, names)
    unclear = lambda: clf.forget_samples(X[:5], y[:5])  # noqa: E731
    assert unchanged(clf, unclear, ValueError, "key_version: expected 0 to 1")
    unknown = lambda: clf.forget_samples(X[:5], y[:5], key_version=2)  # noqa: E731
    assert unchanged(clf, unknown, ValueError, "key_version: expected 0 to 1; got 2")
    # What is left is what would be there, had the forgotten rows never come.
    expected = model().partial_fit(X[30:], y[30:])
    expected._state = expected._state.with_keys(clf.keys_)
    expected.partial_fit(far[20:], names[20:])
    clf.forget_samples(X[:20], y[:20], key_version=0)
    clf.forget_samples(old_batch[np.arange(20, 30)], y[20:30], key_version=0)
    clf.forget_samples(far[:20], names[:20], key_version=1)
    assert same_model(clf, expected)
    clf.relabel(X[30:35], y[30:35], ["gnu"] * 5, key_version=0).forget("gnu")
    clf.forget_samples(X[35:], y[35:], key_version=0)
    only_new = BottleneckClassifier(clf.keys_, rule="counts").partial_fit(far[20:], names[20:])
    assert same_model(clf, only_new)


def test_merging_across_key_versions():
    X, y = rows(60)
    far, names = elsewhere(40)
    clf = model().partial_fit(X, y).grow_keys(far, n_new=4)
    started_later = BottleneckClassifier(clf.keys_, rule="counts").partial_fit(far, names)
    behind = model().partial_fit(X, y)
    assert unchanged(clf, lambda: clf.merge(behind), ValueError, "the same before they grew")
    merged = pickle.loads(pickle.dumps(started_later)).merge(clf)
    assert same_model(clf.merge(started_later), merged)
    assert len(merged.key_versions_) == 2
    clf.forget_samples(X, y, key_version=0)
    assert same_model(clf, started_later)


def test_codes_of_earlier_keys_are_refused():
    X, y = rows(60)
    clf = model().partial_fit(X, y)
    codes = clf.batch(X)
    clf.grow_keys(elsewhere()[0])
    with pytest.raises(ValueError, match="a batch of other keys"):
        clf.predict(codes)


# ------------------------------------------------------------------------------------ frozen copies
@pytest.mark.parametrize("how", [*SUMMABLE, "sgd"])
@pytest.mark.parametrize("candidate_keys", ["all", "used"])
def test_a_frozen_copy_predicts_the_same_and_is_read_only(how, candidate_keys):
    X, y = rows(30)
    queries = blobs(6, seed=9)[0]
    chosen = {"candidate_keys": candidate_keys} if how in ("counts", "sgd") else {}
    clf = model(how, **chosen).partial_fit(X, y, classes=[*np.unique(y), "yak"])
    frozen = clf.freeze()
    assert np.array_equal(frozen.decision_function(queries), clf.decision_function(queries))
    assert np.array_equal(frozen.predict_proba(queries), clf.predict_proba(queries))
    assert (frozen.predict(frozen.batch(queries)) == clf.predict(queries)).all()
    if how in ("counts", "sgd"):
        assert (frozen.keys_.n_pairs < 16) == (candidate_keys == "used")
    for call in (
        lambda: frozen.partial_fit(X, y),
        lambda: frozen.fit(X, y),
        lambda: frozen.forget_samples(X, y),
        lambda: frozen.forget("ant"),
        lambda: frozen.relabel(X, y, y),
        lambda: frozen.merge(clf),
        lambda: frozen.grow_keys(X),
    ):
        assert unchanged(frozen, call, ValueError, "inference-only copy")
    clf.partial_fit(X, y)  # the original goes on
    again = pickle.loads(pickle.dumps(frozen))
    assert np.array_equal(again.decision_function(queries), frozen.decision_function(queries))
    assert unchanged(again, lambda: again.partial_fit(X, y), ValueError, "inference-only copy")


def test_a_frozen_copy_is_smaller():
    X, y = blobs(6, a_class=300)
    sizes = {"n_codebooks": 16, "n_pairs": 400, "key_dim": 3}
    clf = BottleneckClassifier(sizes, rules.Counts(candidate_keys="used")).partial_fit(X, y)
    clf.forget(0).forget(1).forget(2)
    assert len(pickle.dumps(clf.freeze())) < 0.8 * len(pickle.dumps(clf))
