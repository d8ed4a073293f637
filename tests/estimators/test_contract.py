"""What every classifier promises, whatever it is made of."""

import gc
import inspect
import pickle
import weakref
from copy import copy, deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dkvb.estimators.registry import classifier_class, classifier_names, make_classifier

from .settings import NAMES, ORDER_FREE, blobs, class_of, small

every = pytest.mark.parametrize("name", NAMES)


@every
def test_scores_and_predictions_follow_classes(name):
    X, y = blobs(4)
    model = small(name).partial_fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (len(X), 4)
    assert scores.dtype == np.float64
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.n_features_in_ == X.shape[1]
    assert (model.predict(X) == model.classes_[scores.argmax(axis=1)]).all()
    assert model.score(X, y) > 0.95
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(X)
        assert np.allclose(shares.sum(axis=1), 1)
        assert (shares.argmax(axis=1) == scores.argmax(axis=1)).all()


@every
@pytest.mark.parametrize(
    "naming",
    [np.array(["yak", "ant", "bee"]), np.array([3, -1, 2]), np.array([2.0, 5.0, 1.0])],
    ids=["string", "integer", "float"],
)
def test_the_names_of_classes_do_not_matter(name, naming):
    X, y = blobs(3)
    plain = small(name).partial_fit(X, y).predict(X)
    named = small(name).partial_fit(X, naming[y]).predict(X)
    assert named.dtype == naming.dtype
    assert (named == naming[plain]).mean() > 0.98  # rows in between may follow the columns' order


@every
def test_booleans_and_two_classes(name):
    X, y = blobs(2)
    model = small(name).partial_fit(X, y == 1)
    assert model.predict(X).dtype == bool
    assert model.decision_function(X).shape == (len(X),)
    assert ((model.decision_function(X) > 0) == model.predict(X)).all()


@every
def test_one_row_then_one_class_then_longer_names(name):
    X, y = blobs(3)
    names = np.array(["a", "bb", "a much longer name"])[y]
    model = small(name).partial_fit(X[:1], names[:1])
    assert (model.predict(X) == names[0]).all()
    for label in ("a", "bb", "a much longer name"):
        model.partial_fit(X[names == label], names[names == label])
    assert model.classes_.tolist() == ["a", "a much longer name", "bb"]
    assert model.decision_function(X[:1]).shape == (1, 3)
    assert set(model.predict(X)) <= set(names)


@every
def test_declared_classes_have_columns_from_the_start(name):
    X, y = blobs(3)
    model = small(name).partial_fit(X[y < 2], y[y < 2], classes=[2, 0, 1])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.decision_function(X).shape == (len(X), 3)
    assert not (model.predict(X) == 2).any()  # nothing was learned of it
    model.partial_fit(X, y)
    assert model.score(X, y) > 0.9


@every
def test_a_call_that_declares_classes_refuses_others(name):
    X, y = blobs(4)
    first = y < 2
    untouched = small(name)
    before = dict(vars(untouched))
    with pytest.raises(ValueError, match=r"y: expected .* classes .*got 2, 3; add them"):
        untouched.partial_fit(X, y, classes=[0, 1])
    assert vars(untouched) == before

    model = small(name).partial_fit(X[first], y[first], classes=[0, 1])
    attributes, scores = dict(vars(model)), model.decision_function(X)
    with pytest.raises(ValueError, match="got 3; add them to classes, or leave classes out"):
        model.partial_fit(X, y, classes=[2])  # 0 and 1 are known
    assert vars(model) == attributes  # the same objects
    assert np.array_equal(model.decision_function(X), scores)
    model.partial_fit(X[y < 3], y[y < 3], classes=[2])
    model.partial_fit(X, y)  # without a declaration, anything new is learned
    assert model.classes_.tolist() == [0, 1, 2, 3]


@every
def test_what_was_learned_is_gone_with_the_classifier(name):
    X, y = blobs(3)
    gc.collect()
    gc.disable()  # which would find objects that hold each other, but late
    try:
        model = small(name).fit(X, y)
        model.predict(X)
        twin, again = deepcopy(model), pickle.loads(pickle.dumps(model))
        gone = [weakref.ref(one) for one in (model, twin, again)]
        del model, twin, again
        assert [reference() for reference in gone] == [None] * 3
    finally:
        gc.enable()


@every
@pytest.mark.parametrize("way", [copy, deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_outlives_what_it_was_copied_from(name, way):
    X, y = blobs(3)
    model = small(name).fit(X[y < 2], y[y < 2])
    twin, scores = way(model), model.decision_function(X)
    del model
    assert np.array_equal(twin.decision_function(X), scores)
    assert twin.partial_fit(X, y).classes_.tolist() == [0, 1, 2]


@every
def test_fit_forgets_and_partial_fit_does_not(name):
    X, y = blobs(4)
    late = y >= 2
    model = small(name).partial_fit(X[~late], y[~late]).fit(X[late], y[late])
    assert model.classes_.tolist() == [2, 3]
    fresh = small(name).fit(X[late], y[late])
    assert np.array_equal(model.decision_function(X), fresh.decision_function(X))
    assert model.fit(X[:, :3], y).n_features_in_ == 3


BAD = {
    "NaN": (lambda X, y: (np.where(X > 0, np.nan, X), y), ValueError, "NaN"),
    "infinity": (lambda X, y: (np.where(X > 0, np.inf, X), y), ValueError, "infinity"),
    "too large": (lambda X, y: (X.astype(float) * 1e200, y), ValueError, "too large"),
    "wrong width": (lambda X, y: (X[:, :2], y), ValueError, "2 features.*expecting 6"),
    "one dimension": (lambda X, y: (X[0], y), ValueError, "2D"),
    "no rows": (lambda X, y: (X[:0], y[:0]), ValueError, "0 sample"),
    "text": (lambda X, y: (X.astype(str), y), TypeError, "X: expected numbers"),
    "lengths": (lambda X, y: (X, y[:-1]), ValueError, "y: expected"),
    "other kind": (lambda X, y: (X, y.astype(str)), TypeError, "number labels.*string labels"),
    "mixed kinds": (lambda X, y: (X, ["a", *y[1:].tolist()]), TypeError, "mixture"),
    "no label": (lambda X, y: (X, [None, *y[1:].tolist()]), ValueError, "None"),
    "continuous": (lambda X, y: (X, y + 0.5), ValueError, "continuous"),
    "None": (lambda X, y: (X, None), ValueError, "requires y"),
}


@every
@pytest.mark.parametrize("bad", BAD)
def test_bad_rows_raise_before_anything_changes(name, bad):
    X, y = blobs(3)
    spoil, error, says = BAD[bad]
    X_bad, y_bad = spoil(X, y)
    untouched = small(name)
    before = dict(vars(untouched))
    if bad not in ("wrong width", "other kind"):  # fine for a model without a past
        with pytest.raises(error, match=says):
            untouched.partial_fit(X_bad, y_bad)
        assert vars(untouched) == before

    model = small(name).partial_fit(X, y)
    state = pickle.dumps(model)
    scores = model.decision_function(X)
    model = pickle.loads(state)
    attributes = dict(vars(model))
    for learn in (model.partial_fit, model.fit):
        if learn == model.fit and bad in ("wrong width", "other kind"):
            continue
        with pytest.raises(error, match=says):
            learn(X_bad, y_bad)
        assert vars(model) == attributes  # the same objects
        assert np.array_equal(model.decision_function(X), scores)
    if y_bad is not None and len(X_bad) == len(y_bad) and bad in ("NaN", "infinity", "wrong width"):
        with pytest.raises(error, match=says):
            model.decision_function(X_bad)


@every
def test_bad_settings_raise_before_anything_changes(name):
    X, y = blobs(2)
    for parameter, default in small(name).get_params().items():
        if parameter in ("random_state", "bias"):
            continue
        wrong = "no such thing" if isinstance(default, str) else -1
        model = small(name).set_params(**{parameter: wrong})
        before = dict(vars(model))
        with pytest.raises((TypeError, ValueError), match=parameter):
            model.fit(X, y)
        assert vars(model) == before


@every
def test_before_fitting(name):
    with pytest.raises(NotFittedError):
        small(name).predict(np.zeros((1, 2)))


@every
def test_copies_by_pickle_and_clone(name):
    X, y = blobs(3)
    model = small(name).partial_fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    again.partial_fit(X[:5], y[:5])  # a copy learns on
    assert not hasattr(clone(model), "classes_")


@every
def test_same_seed_same_model_and_the_callers_generators_are_left_alone(name):
    X, y = blobs(3)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    first, second = (small(name).fit(X, y).decision_function(X) for _ in range(2))
    assert np.array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


# Nothing in a kernel classifier is random.
RANDOM = [n for n in NAMES if "random_state" in small(n).get_params() and n != "kernel"]


@pytest.mark.parametrize("name", RANDOM)
def test_random_state_as_in_scikit_learn(name):
    X, y = blobs(3)

    def scores(random_state):
        return small(name, random_state=random_state).fit(X, y).decision_function(X)

    generator = np.random.RandomState
    assert np.array_equal(scores(generator(3)), scores(generator(3)))
    assert not np.array_equal(scores(1), scores(2))
    assert not np.array_equal(scores(None), scores(None))


@pytest.mark.parametrize("name", ORDER_FREE)
@settings(max_examples=15)
@given(data=st.data())
def test_any_order_and_any_batching_give_the_same_model(name, data):
    X, y = blobs(3, a_class=8)
    order = np.array(data.draw(st.permutations(range(len(X)))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(X) - 1), max_size=6)))
    model = small(name)
    for rows in np.split(order, cuts):
        model.partial_fit(X[rows], y[rows])
    queries = blobs(3, seed=1)[0]
    expected = small(name).fit(X, y).decision_function(queries)
    # What was summed in another order is the same to rounding; ridge solutions magnify it.
    tolerance = 1e-5 if name == "ranpac" else 1e-9
    assert np.allclose(model.decision_function(queries), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bottleneck", {}),
        *((name, {"optimizer": rule}) for name in ("linear", "mlp") for rule in ("sgd", "adam")),
        ("sdmlp", {}),
        ("sdmlp-ewc", {"boundary": "told"}),
        ("ewc", {"boundary": "told"}),
        ("fly", {}),
    ],
)
def test_k_calls_of_one_epoch_are_one_call_of_k(name, settings):
    X, y = blobs(3)
    once = small(name, epochs=4, **settings).partial_fit(X, y)
    often = small(name, epochs=1, **settings)
    for _ in range(4):
        often.partial_fit(X, y)
    assert np.array_equal(once.decision_function(X), often.decision_function(X))


@pytest.mark.parametrize("name", ORDER_FREE)
def test_what_was_learned_first_is_not_forgotten(name):
    X, y = blobs(6)
    model = small(name)
    for label in range(6):
        model.partial_fit(X[y == label], y[y == label])
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(class_of(n), "freeze")])
def test_a_frozen_copy_cannot_learn(name):
    X, y = blobs(3)
    model = small(name).fit(X, y)
    frozen = model.freeze()
    assert np.array_equal(frozen.predict(X), model.predict(X))
    before = dict(vars(frozen))
    with pytest.raises(ValueError, match="inference-only copy"):
        frozen.partial_fit(X, y)
    assert vars(frozen) == before


@every
def test_says_what_it_needs_and_keeps(name):
    text = inspect.getdoc(class_of(name))
    assert "Needs:" in text
    assert "Memory:" in text


def test_settings_from_text():
    model = make_classifier(
        "mlp", {"learning_rate": "0.5", "hidden": "7", "optimizer": "adam"}, seed=3, epochs=9
    )
    assert (model.learning_rate, model.hidden, model.optimizer) == (0.5, 7, "adam")
    assert (model.random_state, model.epochs) == (3, 9)
    assert make_classifier("linear", {"bias": "False"}).bias is False
    assert make_classifier("linear", {"random_state": "none"}).random_state is None
    assert make_classifier("linear", {"epochs": "2"}, epochs=9).epochs == 2
    assert make_classifier("slda", {"shrinkage": "oas"}, epochs=9).shrinkage == "oas"
    assert make_classifier("slda", {"shrinkage": "0.1"}).shrinkage == 0.1
    assert make_classifier("prototypes", {"metric": "cosine"}, key_rows=[[1.0]]).metric == "cosine"


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("lineal", {}, "'linear', 'mlp'.*got 'lineal'"),
        ("linear", {"lr": "1"}, "'linear'.*'epochs', 'batch_size'.*'bias'.*got 'lr'"),
        ("mlp", {"hidden": "many"}, "hidden: expected int; got 'many'"),
        ("linear", {"bias": "perhaps"}, "bias: expected bool; got 'perhaps'"),
    ],
)
def test_unknown_names_and_wrong_text_list_what_is_valid(name, params, says):
    with pytest.raises(ValueError, match=says):
        make_classifier(name, params)


def test_every_registered_classifier_is_under_contract():
    assert {name.partition("-")[0] for name in NAMES} == set(classifier_names())


def test_classes_are_importable_by_name():
    from dkvb.estimators import registry as classifiers

    assert classifiers.LinearClassifier is classifier_class("linear")
    with pytest.raises(AttributeError, match="NoSuchClassifier"):
        _ = classifiers.NoSuchClassifier
