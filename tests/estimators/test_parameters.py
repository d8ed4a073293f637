"""Parameters belong to the classifier, its rule or `fit_keys`; what does not belong is refused."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dkvb import BottleneckClassifier, fit_keys, rules
from dkvb.estimators.parameters import FewClassesWarning
from dkvb.estimators.registry import make_classifier

from .settings import blobs

SIZES = {"n_codebooks": 4, "n_pairs": 8, "key_dim": 2}


@pytest.mark.parametrize(
    ("unknown", "says"),
    [
        (
            {"epochs": 5},
            r"'epochs', which belongs to rules\.SGD .*rule=rules\.SGD\(epochs=\.\.\.\)",
        ),
        ({"pseudocount": 1.0}, r"rules\.Counts; pass rule=rules\.Counts\(pseudocount"),
        ({"class_weight": None}, r"rules\.Counts and rules\.LeastSquares"),
        ({"n_codebooks": 8}, r'fit_keys; pass keys=\{"n_codebooks": \.\.\.\}'),
        ({"colour": "red"}, "unexpected parameter 'colour'; expected keys, rule, "),
    ],
)
def test_a_parameter_that_does_not_belong_names_its_owner(unknown, says):
    with pytest.raises(TypeError, match=says):
        BottleneckClassifier(rule="counts", **unknown)


def test_few_parameters():
    for cls in (BottleneckClassifier, rules.SGD, rules.Counts, rules.LeastSquares):
        assert len(inspect.signature(cls).parameters) <= 8


@pytest.mark.parametrize("rule", ["counts", rules.Counts()])
def test_grid_search_over_parameters_of_the_rule(rule):
    X, y = blobs(3)
    keys = fit_keys(X, **SIZES)
    grid = {"rule__pseudocount": [0.01, 10.0], "rule__class_weight": ["balanced", None]}
    search = GridSearchCV(BottleneckClassifier(keys, rule), grid, cv=2).fit(X, y)
    best = search.best_estimator_
    assert best.rule_.pseudocount == search.best_params_["rule__pseudocount"]
    assert clone(best).rule.get_params() == best.rule.get_params()


def test_parameters_of_the_rule_count_from_the_next_fit_on():
    X, y = blobs(3)
    clf = BottleneckClassifier(fit_keys(X, **SIZES)).fit(X, y)
    clf.set_params(rule__pseudocount=3.0)
    assert clf.rule_.pseudocount == 0.025
    assert clf.partial_fit(X, y).rule_.pseudocount == 0.025
    assert clf.fit(X, y).rule_.pseudocount == 3.0
    with pytest.raises(ValueError, match="Invalid parameter 'epochs'"):
        clf.set_params(rule__epochs=3)


def test_a_fitted_rule_is_a_clone():
    X, y = blobs(3)
    rule = rules.Counts()
    clf = BottleneckClassifier(fit_keys(X, **SIZES), rule).fit(X, y)
    assert clf.rule is rule
    assert clf.rule_ is not rule
    assert not hasattr(rule, "state_")


@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        (3, TypeError, "keys: expected a Keys object, None, or a mapping"),
        ({"n_books": 3}, ValueError, "keys: expected one of .*'n_codebooks'.*got 'n_books'"),
        ({"n_pairs": 0}, ValueError, "n_pairs: expected a whole number"),
    ],
)
def test_keys_that_are_none(keys, error, says):
    X, y = blobs(3)
    clf = BottleneckClassifier(keys)
    before = dict(vars(clf))
    with pytest.raises(error, match=says):
        clf.fit(X, y)
    assert vars(clf) == before


def test_keys_too_large_for_a_rule_are_refused_before_anything_is_allocated(monkeypatch):
    X, y = blobs(3)
    clf = BottleneckClassifier(fit_keys(X, **SIZES), "least_squares")
    monkeypatch.setattr("dkvb._support.memory.SMALL", 0)
    monkeypatch.setattr("dkvb._support.memory.free_memory", lambda device: 8 * 31**2)
    says = r"keys: rule='least_squares' would keep .*4 × 8 .*12\.3 kB.*preset='least_squares'"
    with pytest.raises(MemoryError, match=says):
        clf.fit(X, y)
    assert not hasattr(clf, "rule_")
    sgd = BottleneckClassifier(clf.keys, "sgd")
    monkeypatch.setattr("dkvb._support.memory.free_memory", lambda device: 4 * 32 * 3)
    with pytest.raises(MemoryError, match="rule='sgd' would keep 4 × 8 × 3 values"):
        sgd.fit(X, y)


def test_default_keys_ask_for_terabytes_in_least_squares():
    from dkvb.bottleneck.fit_keys import PRESETS
    from dkvb.rules.base import check_fits

    paper = PRESETS["paper"]
    size = 8 * (paper["n_codebooks"] * paper["n_pairs"]) ** 2
    assert 8e12 < size < 9e12
    import torch

    with pytest.raises(MemoryError, match=r"8\.8 TB"):
        check_fits(rules.LeastSquares(), size, torch.device("cpu"), "sums")


def test_keys_of_a_first_batch_with_few_classes_warn():
    X, y = blobs(12, a_class=40)
    few = y < 3
    with pytest.warns(FewClassesWarning, match=r"first batch of 3 classes.*keys=fit_keys"):
        BottleneckClassifier().partial_fit(X[few], y[few])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BottleneckClassifier().partial_fit(X, y)
        BottleneckClassifier().fit(X[few], y[few])
        BottleneckClassifier().partial_fit(X[few], y[few], classes=[0, 1, 2])
        BottleneckClassifier(fit_keys(X, **SIZES)).partial_fit(X[few], y[few])


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"rule": "counts", "epochs": "5"},
            "expected one of .*'pseudocount'.*it belongs to rule=sgd",
        ),
        ({"rule": "sgd", "colour": "red"}, "expected one of .*'learning_rate'.*got 'colour'$"),
        ({"rule": "sums"}, "rule: expected one of 'sgd', 'counts', 'least_squares'; got 'sums'"),
    ],
)
def test_specs_route_parameters_by_name(params, says):
    made = make_classifier("bottleneck", {"rule": "sgd", "epochs": "3", "key_epochs": "2"})
    assert (made.rule.epochs, made.keys) == (3, {"epochs": 2})
    with pytest.raises(ValueError, match=says):
        make_classifier("bottleneck", params)


# --------------------------------------------------------------------- one way in, for all ways
BAD_LABELS = {
    "unknown": (["unknown"], ValueError),
    "NaN": ([float("nan")], ValueError),
    "None": ([None], ValueError),
    "another kind": ([3], TypeError),
    "a mixture": (["ant", 3], TypeError),
    "nested": ([["ant", "bee"]], ValueError),
    "control characters": (["a\n"], ValueError),
    "too many": (["ant", "bee", "cat"], ValueError),
}
BAD_ROWS = {
    "NaN": lambda X: X * np.nan,
    "infinity": lambda X: X / 0.0,
    "narrow": lambda X: X[:, 1:],
    "one dimension": lambda X: X[0],
    "text": lambda X: X.astype(str),
    "none": lambda X: X[:0],
}


def learned(keys, y, X):
    return BottleneckClassifier(keys, novelty_threshold=0.9).fit(X, y)


@pytest.mark.parametrize("bad", BAD_LABELS)
def test_no_way_to_learn_accepts_labels_that_another_refuses(bad):
    X, y = blobs(3)
    y = np.array(["ant", "bee", "cow"])[y]
    clf = learned(fit_keys(X, **SIZES), y, X)
    labels, error = BAD_LABELS[bad]
    rows = X[: min(2, len(labels))] if bad != "too many" else X[:2]
    before = dict(vars(clf))
    for way in (clf.partial_fit, clf.journal_record, clf.fit):
        if way == clf.fit and bad == "another kind":
            continue  # fine for a new model
        with pytest.raises(error):
            way(rows, labels)
    if bad != "too many":
        with pytest.raises(error):
            clf.relabel(X[: len(labels)], y[: len(labels)], labels)
    assert vars(clf) == before


def test_merging_and_replaying_refuse_the_label_that_stands_for_unknown():
    X, y = blobs(3)
    y = np.array(["ant", "bee", "unknown"])[y]
    keys = fit_keys(X, **SIZES)
    careless = BottleneckClassifier(keys).fit(X, y)
    careful = learned(keys, y[y != "unknown"], X[y != "unknown"])
    before = dict(vars(careful))
    with pytest.raises(ValueError, match="novelty_threshold: expected no class 'unknown'"):
        careful.merge(careless)
    with pytest.raises(ValueError, match="novelty_threshold: expected no class 'unknown'"):
        careful.replay(careless.journal_record(X, y))
    assert vars(careful) == before


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_way_to_learn_accepts_rows_that_another_refuses(bad):
    X, y = blobs(3)
    clf = BottleneckClassifier(fit_keys(X, **SIZES)).fit(X, y)
    rows = BAD_ROWS[bad](X[:2])
    before = dict(vars(clf))
    for way in (clf.partial_fit, clf.fit, clf.journal_record, clf.forget_samples):
        with pytest.raises((ValueError, TypeError)):
            way(rows, y[: len(rows)])
    with pytest.raises((ValueError, TypeError)):
        clf.predict(rows)
    assert vars(clf) == before


def test_what_a_journal_replays_is_what_was_learned():
    X, y = blobs(4)
    keys = fit_keys(X, **SIZES)
    for rule in ("sgd", "counts", "least_squares"):
        ours, theirs = (BottleneckClassifier(keys, rule).fit(X[y < 3], y[y < 3]) for _ in range(2))
        assert ours.replay(ours.journal_record(X, y)) == len(X)
        assert np.array_equal(
            ours.decision_function(X), theirs.partial_fit(X, y).decision_function(X)
        )
