"""What the bottleneck classifier says of its inputs, and how it fits among other estimators."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck.fit_keys import PRESETS
from dkvb.evaluation.metrics import expected_calibration_error
from dkvb.rules import rule_names

from .settings import blobs, bottleneck

every_rule = pytest.mark.parametrize("rule", rule_names())
WIDTH = 12
SIZES = {"n_codebooks": 4, "n_pairs": 8, "key_dim": 2}


def overlapping(n, n_classes=4, seed=0):
    """Classes that cannot be told apart without error."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(5).normal(size=(n_classes, WIDTH))
    y = rng.integers(n_classes, size=n)
    return (centres[y] + 1.2 * rng.normal(size=(n, WIDTH))).astype(np.float32), y


@cache
def keys():
    return fit_keys(
        overlapping(3000, seed=9)[0], preset="paper", n_codebooks=16, n_pairs=32, key_dim=4
    )


def model(rule="counts", **settings):
    usual = {"learning_rate": 30.0, "epochs": 5} if rule == "sgd" else {}
    return bottleneck(keys(), rule, **usual, **settings)


# ------------------------------------------------------------------------------------- settings
def test_the_rules_own_sizes_unless_told_otherwise():
    X, y = blobs(4, a_class=60, width=20)
    for rule, kind, width in (("sgd", "centre", 20), ("counts", "whitened", 20)):
        made = BottleneckClassifier(SIZES, rule).fit(X, y).keys_
        assert made.settings["conditioning"] == kind
        assert made.conditioning.output_width == width
    method = {"method": "lloyd", "epochs": 3, "conditioning": "half-whitened", "n_components": 5}
    own = BottleneckClassifier({**SIZES, **method})
    made = own.fit(X, y).keys_
    assert made.conditioning.output_width == 5
    assert (made.settings["method"], made.settings["epochs"]) == ("lloyd", 3)
    assert PRESETS["counts"]["n_components"] == 128


def test_the_width_of_keys_is_checked_before_anything_changes():
    X, y = overlapping(20)
    clf = model()
    before = dict(vars(clf))
    for learn in (clf.fit, clf.partial_fit):
        with pytest.raises(ValueError, match="X: expected width 12, that of the keys; got 3"):
            learn(X[:, :3], y)
    assert vars(clf) == before
    fitted = model().fit(X, y)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match="expected width 12"):
        fitted.fit(X[:, :3], y)
    assert vars(fitted) == before


@every_rule
def test_another_rule_or_other_keys_need_a_new_model(rule):
    X, y = overlapping(50)
    clf = model(rule).fit(X, y)
    other = "sgd" if rule == "counts" else "counts"
    with pytest.raises(ValueError, match=f"rule: .*got '{other}'"):
        clf.set_params(rule=other).partial_fit(X, y)
    clf.set_params(rule=rule, keys=fit_keys(X, preset="paper", n_codebooks=2, n_pairs=4, key_dim=2))
    with pytest.raises(ValueError, match="keys: expected those learned with so far"):
        clf.partial_fit(X, y)
    assert clf.fit(X, y).keys_ is clf.keys


def test_only_sgd_learns_in_epochs():
    assert [model(rule).learns_in_epochs for rule in rule_names()] == [True, False, False]


# --------------------------------------------------------------------------------- probabilities
@pytest.mark.parametrize("pooling", ["posterior", "votes"])
def test_probabilities_of_counts_are_calibrated(pooling):
    X, y = overlapping(4000)
    clf = model(pooling=pooling).fit(X, y)
    queries, truth = overlapping(4000, seed=1)
    shares = clf.predict_proba(queries)
    assert np.allclose(shares.sum(axis=1), 1)
    assert expected_calibration_error(truth, shares, clf.classes_) < 0.05
    plain = np.exp(clf.decision_function(queries))
    plain /= plain.sum(axis=1, keepdims=True)
    if pooling == "posterior":  # codebooks that repeat each other are far too sure
        assert expected_calibration_error(truth, plain, clf.classes_) > 0.1


def test_temperature_follows_what_was_learned_and_the_settings():
    X, y = overlapping(2000)
    clf = model().fit(X[:1000], y[:1000])
    queries = overlapping(50, seed=1)[0]
    first = clf.predict_proba(queries)
    assert np.array_equal(clf.predict_proba(queries), first)
    clf.partial_fit(X[1000:], y[1000:])
    assert np.array_equal(clf.predict_proba(queries), model().fit(X, y).predict_proba(queries))
    clf.rule_.set_params(pseudocount=5.0)
    smoother = clf.predict_proba(queries)
    expected = model(pseudocount=5.0).fit(X, y).predict_proba(queries)
    assert np.array_equal(smoother, expected)


@pytest.mark.parametrize("pooling", ["posterior", "votes"])
@pytest.mark.parametrize("class_weight", ["balanced", None])
def test_left_out_rows_are_scored_as_if_never_learned(pooling, class_weight):
    from dkvb.rules.counts import leave_one_out, posterior

    X, y = overlapping(300, n_classes=3)
    clf = model(pooling=pooling, class_weight=class_weight).fit(X, y)
    rule = clf.rule_
    rows = leave_one_out.kept_rows(rule.state_, most=10)
    columns = rows.class_index
    if pooling == "votes":
        scores = posterior.votes(rule.state_, rows.codes)
        scores[torch.arange(len(columns)), columns] -= 1
    else:
        solution = rule.solution()
        logs = leave_one_out.left_out_logs(rule.state_, rows, solution, 0.025, class_weight)
        scores = solution.scores(logs, None)
    codes = clf.batch(X).codes.int()
    kept = [i for i in range(300) if any((codes[i] == row).all() for row in rule.state_.kept_codes)]
    assert 3 < len(kept) < 60
    expected = []
    for i in kept:
        without = pickle.loads(pickle.dumps(clf)).forget_samples(X[i : i + 1], y[i : i + 1])
        evidence = without.rule_.evidence(without.batch(X[i : i + 1]))
        expected.append(evidence.contributions[0].sum(dim=0))  # of counts alone
    # The row left out has a small part in the normalisation of scores.
    tolerance = 0.05 if (class_weight, pooling) == ("balanced", "posterior") else 1e-9
    for score, column in zip(scores, columns, strict=True):
        # Equal up to a constant: the prior's sum is one row smaller.
        distance = [(score - other - (score - other)[0]).abs().max() for other in expected]
        assert min(distance) < tolerance
        assert clf._state.labels.indices(y)[kept[int(np.argmin(distance))]] == column


# ----------------------------------------------------------------------------- novelty and drift
def test_novelty_is_a_quantile_of_rows_like_those_of_the_keys():
    clf = model()  # needs keys only
    like, unlike = overlapping(2000, seed=21)[0], overlapping(100, seed=22)[0] + 20
    found = clf.novelty(like)
    assert found.shape == (2000,)
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(found, q) == pytest.approx(q, abs=0.08)
    assert clf.novelty(unlike).min() == 1.0
    assert np.array_equal(clf.novelty(clf.batch(like[:20])), found[:20])
    assert np.array_equal(clf.novelty(like[3:4]), found[3:4])
    with pytest.raises(NotFittedError, match="no keys yet"):
        BottleneckClassifier().novelty(like)


def test_drift_is_calibrated_under_no_shift_and_sees_one():
    clf = model()
    rows = overlapping(8000, seed=31)[0]
    p = np.array([clf.drift(a[:40], a[40:]).p_value for a in rows.reshape(80, 100, WIDTH)])
    # Under no shift p is uniform: 80 values, each bound passed with probability below 1e-3.
    assert (p < 0.05).sum() <= 12
    assert 20 <= (p < 0.5).sum() <= 60
    seen = clf.drift(rows[:200] * 1.3, rows[200:400])
    assert seen.p_value < 1e-3
    assert seen.novelty > seen.reference_novelty
    with pytest.raises(FrozenInstanceError):
        seen.p_value = 1.0


def test_large_batches_have_the_same_meaning():
    clf = model()
    rows = overlapping(4400, seed=41)[0]
    assert clf.drift(rows[:2200], rows[2200:]).p_value > 0.01
    assert clf.drift(rows[:2200] * 1.1, rows[2200:]).p_value < 1e-3


# ------------------------------------------------------------------------------------- rejection
@every_rule
@pytest.mark.parametrize(
    ("naming", "unknown"),
    [
        (np.array(["ant", "bee", "cat", "dog"]), "unknown"),
        (np.arange(4), -1),
        (np.arange(4, dtype=np.uint8), -1),
        (np.arange(4.0), -1),
    ],
    ids=["string", "integer", "unsigned", "float"],
)
def test_inputs_beyond_the_threshold_are_unknown(rule, naming, unknown):
    X, y = overlapping(400)
    clf = model(rule).fit(X, naming[y])
    queries = np.concatenate([overlapping(100, seed=3)[0], X[:5] + 30])
    plain, far = clf.predict(queries), clf.novelty(queries) > 0.9
    found = clf.set_params(novelty_threshold=0.9).predict(queries)
    assert 5 <= far.sum() < 60
    assert (found[far] == unknown).all()
    assert (found[~far] == plain[~far]).all()
    assert (clf.predict(clf.batch(queries)) == found).all()
    assert (clf.set_params(novelty_threshold=1.0).predict(queries) == plain).all()


def test_labels_without_a_place_for_unknown():
    X, y = overlapping(50)
    for labels, says in ((y > 1, "got booleans"), (y - 1, "no class -1")):
        clf = model(novelty_threshold=0.5)
        before = dict(vars(clf))
        with pytest.raises(ValueError, match=f"novelty_threshold: .*{says}"):
            clf.fit(X, labels)
        assert vars(clf) == before
        with pytest.raises(ValueError, match=f"novelty_threshold: .*{says}"):
            model().fit(X, labels).set_params(novelty_threshold=0.5).predict(X)


# ------------------------------------------------------------------------------------ explaining
@every_rule
@pytest.mark.parametrize("pooling", ["posterior", "votes"])
def test_contributions_add_up_to_scores(rule, pooling):
    X, y = overlapping(400)
    clf = model(rule, **({"pooling": pooling} if rule == "counts" else {})).fit(
        X, np.array(["ant", "bee", "cat", "dog"])[y]
    )
    told = clf.explain(X[7])
    assert told.label == clf.predict(X[7:8])[0]
    assert told.classes.tolist() == ["ant", "bee", "cat", "dog"]
    means = 0.0 if told.class_means is None else told.class_means
    assert (told.class_means is not None) == (rule == "counts" and pooling == "posterior")
    assert np.allclose(told.contributions.sum(axis=0) + means, told.scores)
    assert np.allclose(told.scores, clf.decision_function(X[7:8])[0])
    assert told.novelty == clf.novelty(X[7:8])[0]
    assert len(told.votes()) == 16
    assert (told.selected == clf.usage_[np.arange(16), told.pairs]).all()
    leads = [vote.lead for vote in told.votes()]
    assert leads == sorted(leads, reverse=True)
    assert (
        told.votes(told.label, most=2)
        == [vote for vote in told.votes() if vote.label == told.label][:2]
    )
    assert told.label in str(told)
    assert "codebook" in str(told)


def test_classes_without_rows_have_no_votes():
    X, y = overlapping(100)
    told = model().partial_fit(X, y, classes=[*np.unique(y), 9]).explain(X[0])
    assert 9 not in [vote.label for vote in told.votes()]
    assert told.scores[-1] == -np.inf


def test_examples_are_counts_by_hand():
    X, y = overlapping(400)
    clf = model().fit(X, y)
    told = clf.explain(X[3])
    codes = clf.batch(X).codes.long()
    same = (codes == codes[3]).numpy()  # (n, C)
    expected = np.stack([same[y == label].sum(axis=0) for label in range(4)], axis=1)
    assert np.array_equal(told.examples, expected)
    best = told.votes(most=1)[0]
    assert best.examples == expected[best.codebook, best.label]
    assert best.selected == expected[best.codebook].sum()
    with pytest.raises(ValueError, match="x: expected one input; got 2"):
        clf.explain(X[:2])


# ------------------------------------------------------------------------------ search and state
def test_counts_can_search_used_keys_only():
    X, y = overlapping(30)
    queries = overlapping(200, seed=1)[0]
    clf = model(candidate_keys="used").fit(X, y)
    seen = clf.usage_ > 0
    assert not seen.all()
    codes = keys().codes(queries, active=torch.from_numpy(seen))
    batch = clf.batch(queries)
    assert torch.equal(clf.rule_.codes(batch), codes.long())
    assert torch.equal(batch.codes, keys().codes(queries))
    assert torch.equal(clf.rule_.codes(batch), codes.long())  # those that are known help


def test_fitting_anew_from_codes():
    X, y = overlapping(200)
    clf = BottleneckClassifier(SIZES).fit(X, y)
    scores = clf.decision_function(X)
    assert np.array_equal(clf.fit(clf.batch(X), y).decision_function(X), scores)
    grown = model().fit(X, y).grow_keys(X + 30)
    assert grown.keys_ is not keys()
    expected = model().fit(X, y).decision_function(X)
    assert np.array_equal(grown.fit(grown.batch(X), y).decision_function(X), expected)


def test_usage_counts_selections():
    X, y = overlapping(40)
    assert model().fit(X, y).usage_.sum() == 40 * 16
    assert model("sgd").fit(X, y).usage_.sum() == 5 * 40 * 16
    with pytest.raises(NotFittedError):
        _ = model().usage_


# ------------------------------------------------------------------------- among other estimators
@every_rule
def test_clones_and_deep_copies_share_keys(rule):
    clf = model(rule).fit(*overlapping(50))
    assert clone(clf).keys is keys()
    assert not hasattr(clone(clf), "keys_")
    assert not hasattr(clone(clf), "audit_")


def test_grid_search_in_other_processes_and_pipelines():
    X, y = overlapping(300)
    search = GridSearchCV(model(), {"rule__pseudocount": [0.1, 1.0]}, cv=2, n_jobs=2)
    search.fit(X, y)
    assert search.best_score_ > 0.5
    assert search.best_estimator_.keys_.fingerprint == keys().fingerprint
    alone = cross_val_score(model(pseudocount=search.best_params_["rule__pseudocount"]), X, y, cv=2)
    assert alone.mean() == pytest.approx(search.best_score_)
    pipeline = make_pipeline(FunctionTransformer(np.float32), model()).fit(X, y)
    assert (pipeline.predict(X) == model().fit(X, y).predict(X)).all()


@every_rule
def test_methods_that_change_the_model_return_it(rule):
    X, y = overlapping(100)
    stored = {"store_samples": True} if rule == "least_squares" else {}
    clf = model(rule, **stored)
    assert clf.fit(X, y) is clf
    assert clf.partial_fit(X, y) is clf
    if rule != "sgd":
        assert clf.forget_samples(X[:5], y[:5]) is clf
        assert clf.relabel(X[5:9], y[5:9], y[6:10]) is clf
        assert clf.forget(3) is clf
        assert clf.merge(model(rule, **stored).fit(X, y)) is clf


# ------------------------------------------------------------------- which inputs to label next
@pytest.mark.parametrize("rule", ["counts", "least_squares", "sgd"])
def test_suggestions_are_uncertain_and_differ(rule):
    X, y = overlapping(600, n_classes=3)
    clf = BottleneckClassifier({"n_codebooks": 8, "n_pairs": 16}, rule=rule).fit(X, y)
    queries = overlapping(200, seed=1, n_classes=3)[0]
    picked = clf.suggest(queries, 10)
    assert len(set(picked.tolist())) == 10
    margins = np.sort(clf.predict_proba(queries), axis=1)
    margins = margins[:, -1] - margins[:, -2]
    assert margins[picked].mean() < margins.mean()
    copies = np.repeat(queries[:2], 20, axis=0)
    assert len({int(i) // 20 for i in clf.suggest(copies, 2)}) == 2
    with pytest.raises(ValueError, match="n: expected"):
        clf.suggest(queries, 0)


@pytest.mark.parametrize("name", ["loo_score_", "class_accuracy", "confusion", "suspects"])
def test_what_needs_examples_names_the_classifier_that_has_them(name):
    clf = BottleneckClassifier()
    assert not hasattr(clf, name)
    with pytest.raises(AttributeError, match=f"{name}: expected .* use KernelClassifier"):
        getattr(clf, name)
