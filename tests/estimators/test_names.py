"""Renaming, merging and relabelling classes equals having learned with the later labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb import KernelClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5)).astype(np.float32)
NAMES = ["ant", "bee", "cat", "dog"]
Y = np.array(NAMES)[RNG.integers(4, size=40)]


def fitted(y, ids=None):
    return KernelClassifier().fit(X, y, ids=ids)


def assert_same(one, other):
    assert one.classes_.tolist() == other.classes_.tolist()
    assert one.class_count_ == other.class_count_
    ours, theirs = one.state_arrays(), other.state_arrays()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert one.predict_proba(X) == pytest.approx(other.predict_proba(X), abs=1e-4)


@settings(max_examples=8)
@given(data=st.data())
def test_any_names_are_those_learned_with(data):
    model, y = fitted(Y), Y.astype(object)
    for _ in range(data.draw(st.integers(1, 3))):
        known = sorted(set(y))
        way = data.draw(st.sampled_from(["rename", "merge", "relabel"]))
        new = data.draw(st.sampled_from(["aardvark", "cow", "zebra"]))
        if way == "rename" and new not in known:
            old = data.draw(st.sampled_from(known))
            model.rename(old, new)
            y[y == old] = new
        elif way == "merge":
            chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
            into = data.draw(st.sampled_from([*known, new]))
            model.merge_classes(chosen, into)
            y[np.isin(y, chosen)] = into
        elif way == "relabel":
            rows = data.draw(st.lists(st.integers(0, 39), min_size=1, max_size=4, unique=True))
            model.relabel(X[rows], y[rows].astype(str), [new] * len(rows))
            y[rows] = new
    model.tune()
    assert_same(model, fitted(y.astype(str)))


def test_examples_are_relabelled_by_their_ids():
    ids = [f"row {i}" for i in range(40)]
    model = fitted(Y, ids).relabel(ids=["row 3", "row 5"], y_new=["elk", "fox"])
    y = Y.astype(object)
    y[[3, 5]] = ["elk", "fox"]
    expected = fitted(y.astype(str), ids)
    assert_same(model, expected)
    assert model.rows()[0] == expected.rows()[0]
    for wrong in (
        {"ids": ["row 99"], "y_new": ["elk"]},
        {"ids": ["row 1", "row 1"], "y_new": ["elk", "fox"]},
        {"ids": ["row 1"], "y_new": ["elk", "fox"]},
        {"ids": ["row 1"], "y_new": [3]},
        {"ids": ["row 1"], "X": X[:1], "y_new": ["elk"]},
    ):
        with pytest.raises((ValueError, TypeError)):
            model.relabel(**wrong)
    assert_same(model, expected)


def test_wrong_names_change_nothing():
    model = fitted(Y)
    for change in (
        lambda: model.rename("yak", "zebra"),
        lambda: model.rename("ant", "bee"),
        lambda: model.rename("ant", 3),
        lambda: model.rename("ant", "a\n"),
        lambda: model.merge_classes(["ant", "yak"], "bee"),
        lambda: model.merge_classes([], "bee"),
        lambda: model.merge_classes(["ant"], "a" * 10_000),
    ):
        with pytest.raises((ValueError, TypeError), match="expected"):
            change()
    assert_same(model, fitted(Y))


def test_a_model_that_begins_with_nothing_is_one_that_learned_the_same():
    begun = KernelClassifier().begin(5)
    assert begun.classes_.tolist() == []
    begun.partial_fit(X, Y).tune()
    assert_same(begun, fitted(Y))
    with pytest.raises(ValueError, match="n_features: expected"):
        KernelClassifier().begin(0)


def test_asking_once_is_asking_three_times():
    model = fitted(Y)
    found = model.ask(X)
    assert found.labels.tolist() == model.predict(X).tolist()
    assert found.probabilities == pytest.approx(model.predict_proba(X), abs=1e-12)
    assert found.novelty == pytest.approx(model.novelty(X), abs=1e-12)
    model.set_params(novelty_threshold=0.0)
    assert model.ask(X).labels.tolist() == model.predict(X).tolist()
