"""Models of 1 to 60 rows: every method of every rule answers, and the order changes nothing."""

import warnings
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck.fit_keys import FewRowsWarning

RULES = ["sgd", "counts", "least_squares"]
WIDTH = 5
LABELS = np.array(["ant", "bee", "cat", "dog", "eel"])
QUERIES = np.random.default_rng(9).normal(size=(7, WIDTH)).astype(np.float32)

# One row in 20 is kept to calibrate counts: a small model may have none.
streams = st.fixed_dictionaries(
    {
        "n": st.integers(1, 60),
        "n_classes": st.integers(1, len(LABELS)),
        "distinct": st.integers(1, 60),
        "cuts": st.lists(st.integers(1, 59), max_size=4),
        "own_keys": st.booleans(),
        "seed": st.integers(0, 1000),
    }
)


@cache
def general_keys():
    X = np.random.default_rng(7).normal(size=(300, WIDTH))
    return fit_keys(X, n_codebooks=8, n_pairs=16, key_dim=2, epochs=2)


def rows(n, n_classes, distinct, seed, **_):
    """Rows and labels; fewer distinct rows than rows are repeated, also with other labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(min(n, distinct), WIDTH)).astype(np.float32)
    X = X[np.r_[: len(X), rng.integers(len(X), size=n - len(X))]]
    return X, LABELS[rng.integers(n_classes, size=n)]


def batches(n, cuts):
    ends = sorted({0, n, *(cut for cut in cuts if cut < n)})
    return [slice(a, b) for a, b in pairwise(ends)]


def keys_for(X, own_keys):
    if not own_keys:
        return general_keys()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        return fit_keys(X, n_codebooks=8, n_pairs=16, key_dim=2, epochs=2)


def learned(rule, keys, X, y, cuts):
    clf = BottleneckClassifier(keys, rule=rule)
    for part in batches(len(y), cuts):
        clf.partial_fit(X[part], y[part])
    return clf


def check_answers(clf):
    answers = clf.predict(QUERIES)
    assert set(answers) <= set(clf.classes_)
    shares = clf.predict_proba(QUERIES)
    assert shares.shape == (len(QUERIES), len(clf.classes_))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.isfinite(clf.novelty(QUERIES)).all()
    assert clf.predict(clf.batch(QUERIES)).tolist() == answers.tolist()
    assert clf.explain(QUERIES[0]) is not None
    assert len(clf.predict(QUERIES[:1])) == 1


@pytest.mark.parametrize("rule", RULES)
@given(stream=streams)
@settings(max_examples=25)
def test_every_method_answers(rule, stream, tmp_path_factory):
    X, y = rows(**stream)
    keys = keys_for(X[batches(len(y), stream["cuts"])[0]], stream["own_keys"])
    clf = learned(rule, keys, X, y, stream["cuts"])
    check_answers(clf)

    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    clf.save(path)
    loaded = BottleneckClassifier.load(path)
    assert np.array_equal(loaded.predict_proba(QUERIES), clf.predict_proba(QUERIES))
    if rule == "sgd":
        return

    clf.merge(learned(rule, keys, X[::-1], y[::-1], []))
    check_answers(clf)
    clf.forget_samples(X, y)
    check_answers(clf)
    clf.relabel(X[:1], y[:1], ["fox"])
    check_answers(clf)
    if rule == "counts":
        for label in clf.classes_[1:]:
            clf.forget(label)
            check_answers(clf)


@pytest.mark.parametrize("rule", ["counts", "least_squares"])
@given(stream=streams, random=st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_the_order_changes_nothing(rule, stream, random):
    X, y = rows(**stream)
    keys = keys_for(X, stream["own_keys"])
    order = list(range(len(y)))
    random.shuffle(order)
    one = learned(rule, keys, X, y, stream["cuts"])
    other = learned(rule, keys, X[order], y[order], [])
    ours, theirs = one.state_tensors(), other.state_tensors()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.equal(theirs[name]), name
    shares = one.predict_proba(QUERIES), other.predict_proba(QUERIES)
    if rule == "counts":
        assert np.array_equal(*shares)
    else:  # solved in the order of classes
        np.testing.assert_allclose(*shares, atol=1e-6)


def test_repeated_rows_give_the_same_probabilities_in_any_order():
    """More rows kept for calibration than are used, and many of them equal."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, WIDTH)).astype(np.float32)
    y = LABELS[rng.integers(len(LABELS), size=30)]
    times = rng.integers(500, 3000, size=30)
    rows = np.repeat(np.arange(30), times)
    shares = []
    for order in (rows, rows[::-1], rng.permutation(rows)):
        clf = BottleneckClassifier(general_keys(), rule="counts").fit(X[order], y[order])
        shares.append(clf.predict_proba(QUERIES))
    assert np.array_equal(shares[0], shares[1])
    assert np.array_equal(shares[0], shares[2])
