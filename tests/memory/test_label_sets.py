"""Sets of labels: oracles, order, merge, unlearning, what nobody said, files, and refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import f1_score

import dkvb
from dkvb import KernelClassifier
from dkvb._support import files
from dkvb._support.files import FileError, State
from dkvb.memory.set_quality import best_threshold, fit_logistic

from .problems import same_state

NAMES = np.array(["ant", "bee", "cat", "dog"])


def problem(n=60, seed=0, width=6):
    """Embeddings (n, width) as they are kept, and whether each has each of 4 labels (n, 4)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width)).astype(np.float16).astype(np.float32)
    return X, (X[:, :4] + rng.normal(scale=0.3, size=(n, 4)) > 0.4).astype(int)


def listed(y):
    return [NAMES[row == 1].tolist() for row in y]


def unsaid(y, share=0.3, seed=0):
    """The same matrix, in which some of it is not said."""
    return np.where(np.random.default_rng(seed).random(y.shape) < share, np.nan, y)


def alike(a, b):
    return same_state(a, b) and a.predict_proba(X_TEST) == pytest.approx(b.predict_proba(X_TEST))


X, Y = problem()
X_TEST, Y_TEST = problem(n=300, seed=1)
FORMS = {"matrix": lambda y: y, "unsaid": unsaid, "lists": listed}


# ---------------------------------------------------------------------------------------- learning
@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_each_label_is_kernel_ridge_regression_over_what_was_said_of_it(share):
    y = unsaid(Y, share)
    model = KernelClassifier().fit(X, y)
    scores = model._state.scores(X_TEST)
    np.testing.assert_allclose(scores, ridge(model, X, y), atol=1e-6)


def ridge(model, X_learned, y):
    """What scikit-learn's kernel ridge regression predicts for each label, by itself."""
    s = model._state.solution
    inputs, columns = s.by(X_TEST).astype(np.float64), []
    for column in y.T:
        known = ~np.isnan(column)
        z = s.by(X_learned[known]).astype(np.float64)
        one = KernelRidge(alpha=s.noise, kernel="rbf", gamma=s.gamma).fit(z, column[known])
        columns.append(one.predict(inputs))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("share", [0, 0.3])
def test_what_is_learned_and_unlearned_later_corrects_the_solution(share, monkeypatch):
    y = unsaid(Y, share)
    model = KernelClassifier().fit(X[:40], y[:40])
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 0)
    model.partial_fit(X[40:], y[40:]).forget_samples(X[:3], y[:3])
    assert model._state.solution.inverse.count > 0
    np.testing.assert_allclose(model._state.scores(X_TEST), ridge(model, X[3:], y[3:]), atol=1e-6)


def test_among_many_examples_what_is_unsaid_counts_as_predicted(monkeypatch):
    X_many, y_many = problem(n=300, seed=2)
    y = unsaid(y_many)
    monkeypatch.setattr("dkvb.memory.solve.ALL_LEFT_OUT", 100)
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 0)
    model = KernelClassifier().fit(X_many[:250], y[:250])
    before = model._state.scores(X_TEST)
    model.partial_fit(X_many[250:], y[250:])
    after, exact = model._state.scores(X_TEST), ridge(model, X_many, y)
    assert np.abs(after - exact).mean() < 0.1 * np.abs(after - before).mean()


@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_it_finds_labels(keep):
    X_many, y_many = problem(n=500, seed=2)
    model = KernelClassifier(keep).fit(X_many, y_many)
    f1 = f1_score(Y_TEST, model.predict(X_TEST), average="macro")
    assert f1 > 0.8
    assert abs(model.loo_score_ - f1) < 0.06
    assert model.setting_["score"] == model.loo_score_
    probabilities = model.predict_proba(X_TEST)
    surprise = -np.log(np.where(Y_TEST == 1, probabilities, 1 - probabilities)).mean()
    assert surprise < 0.35  # 0.65 for what knows only how frequent labels are


def test_the_score_is_the_share_of_sets_that_are_right():
    matrix, lists = KernelClassifier().fit(X, Y), KernelClassifier().fit(X, listed(Y))
    share = (matrix.predict(X_TEST) == Y_TEST).all(axis=1).mean()
    assert matrix.score(X_TEST, Y_TEST) == share
    assert lists.score(X_TEST, [set(one) for one in listed(Y_TEST)]) == share
    weight = np.arange(300)
    weighted = lists.score(X_TEST, listed(Y_TEST), weight)
    assert weighted == pytest.approx(matrix.score(X_TEST, Y_TEST, weight))


def test_predictions_have_the_form_of_what_was_learned():
    matrix, lists = KernelClassifier().fit(X, Y), KernelClassifier().fit(X, listed(Y))
    assert matrix.classes_.tolist() == [0, 1, 2, 3]
    assert lists.classes_.tolist() == NAMES.tolist()
    assert lists.predict(X_TEST) == listed(matrix.predict(X_TEST))
    np.testing.assert_array_equal(matrix.predict_proba(X_TEST), lists.predict_proba(X_TEST))
    above = matrix.decision_function(X_TEST) > 0
    np.testing.assert_array_equal(above, matrix.predict(X_TEST))
    frame = KernelClassifier().fit(X, pd.DataFrame(Y[:, ::-1], columns=NAMES[::-1]))
    assert frame.classes_.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(frame.predict(X_TEST), matrix.predict(X_TEST))
    assert same_state(KernelClassifier().fit(X, Y.tolist()), matrix)
    assert same_state(KernelClassifier().fit(X, list(Y)), matrix)
    sets = KernelClassifier().fit(X, [set(one) for one in listed(Y)])
    assert same_state(sets, lists)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_order_batching_split_and_merge_give_the_same_model(form, data):
    y = FORMS[form](Y)
    y = np.array(y, dtype=object) if form == "lists" else y
    order = np.array(data.draw(st.permutations(range(len(X)))))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(X) - 1), min_size=1, max_size=4)))
    parts = [part for part in np.split(order, cuts) if len(part)]
    apart = data.draw(st.integers(0, len(parts) - 1))
    model, other = KernelClassifier(), KernelClassifier()
    for number, part in enumerate(parts):
        (other if number < apart else model).partial_fit(
            X[part], y[part].tolist() if form == "lists" else y[part]
        )
    if apart:
        model.merge(other)
    assert alike(model.tune(), KernelClassifier().fit(X, y.tolist() if form == "lists" else y))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_unlearning_equals_never_having_learned(form, keep):
    y = FORMS[form](Y)
    model = KernelClassifier(keep).fit(X, y).forget_samples(X[:25], y[:25])
    assert alike(model, KernelClassifier(keep).fit(X[25:], y[25:]))


def test_ids_name_examples():
    model = KernelClassifier().fit(X, Y, ids=np.arange(60)).forget_samples(ids=np.arange(25))
    assert alike(model, KernelClassifier().fit(X[25:], Y[25:], ids=np.arange(25, 60)))


def test_a_weight_counts_examples():
    weight = np.random.default_rng(0).integers(0, 3, size=60)
    weighted = KernelClassifier().fit(X, Y, sample_weight=weight)
    assert alike(weighted, KernelClassifier().fit(X.repeat(weight, 0), Y.repeat(weight, 0)))


# ------------------------------------------------------------------------------------------ labels
@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_of_a_label_that_comes_later_earlier_lists_say_no(keep):
    early = [one if "dog" not in one else [] for one in listed(Y[:30])]
    model = KernelClassifier(keep).fit(X[:30], early).partial_fit(X[30:], listed(Y[30:]))
    assert alike(model.tune(), KernelClassifier(keep).fit(X, early + listed(Y[30:])))


@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_of_a_label_that_comes_later_earlier_rows_of_a_matrix_say_nothing(keep):
    model = KernelClassifier(keep).fit(X[:30], Y[:30, :3])
    model.partial_fit(X[30:], Y[30:], classes=[0, 1, 2, 3])
    y = Y.astype(float)
    y[:30, 3] = np.nan
    assert alike(model.tune(), KernelClassifier(keep).fit(X, y))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_a_label_is_forgotten_as_if_nobody_had_ever_said_it(form, keep):
    y = FORMS[form](Y)
    if form == "lists":
        label, never = "bee", [[one for one in labels if one != "bee"] for labels in y]
    else:
        label, never = 1, pd.DataFrame(np.delete(y, 1, axis=1), columns=[0, 2, 3])
    model = KernelClassifier(keep).fit(X, y).forget(label)
    assert label not in model.classes_
    assert model.audit_[-1].rows == Y[:, 1].sum() if form != "unsaid" else True
    assert alike(model, KernelClassifier(keep).fit(X, never))


def test_a_label_is_forgotten_by_many_examples_without_a_new_choice(monkeypatch):
    model = KernelClassifier().fit(X, Y)
    before = model.predict_proba(X_TEST)
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 0)
    by = model._state.solution.by
    model.forget(1)
    assert model._state.solution.by is by
    np.testing.assert_allclose(model.predict_proba(X_TEST), before[:, [0, 2, 3]], atol=1e-6)


def test_labels_have_other_names():
    model = KernelClassifier().fit(X, listed(Y))
    before = model.predict_proba(X_TEST)
    model.rename("ant", "zebra")
    assert model.classes_.tolist() == ["bee", "cat", "dog", "zebra"]
    np.testing.assert_allclose(model.predict_proba(X_TEST), before[:, [1, 2, 3, 0]])
    renamed = [["zebra" if one == "ant" else one for one in labels] for labels in listed(Y)]
    assert alike(model.tune(), KernelClassifier().fit(X, renamed))


@pytest.mark.parametrize("keep", ["examples", "sums"])
@pytest.mark.parametrize("into", ["bee", "animal"])
def test_labels_become_one(keep, into):
    model = KernelClassifier(keep).fit(X, listed(Y)).merge_classes(["ant", "bee"], into)
    one = [{into if label in ("ant", "bee") else label for label in row} for row in listed(Y)]
    assert alike(model, KernelClassifier(keep).fit(X, one))


def test_what_was_said_decides_where_labels_become_one():
    y = np.array([[1, np.nan], [0, np.nan], [0, 0], [np.nan, 1], [np.nan, np.nan], [1, 0]])
    model = KernelClassifier().fit(X[:6], y).merge_classes([0, 1], 0)
    assert model._state.table[model._state.memory.targets, 0].tolist() == [1, -1, 0, 1, -1, 1]


def test_declared_labels_stay():
    model = KernelClassifier().partial_fit(X[:5], [["ant"]] * 5, classes=["ant", "emu"])
    assert model.classes_.tolist() == ["ant", "emu"]
    assert model.class_count_ == {"ant": 5, "emu": 0}
    assert model.predict(X[:2]) == [["ant"], ["ant"]]
    model.partial_fit(X[5:9], [["emu"]] * 4).forget_samples(X[:5], [["ant"]] * 5)
    assert model.forget_samples(X[5:8], [["emu"]] * 3).classes_.tolist() == ["ant", "emu"]


def test_examples_without_any_label_are_learned():
    model = KernelClassifier().fit(X, [[]] * 30 + [["ant"]] * 30)
    assert model.class_count_ == {"ant": 30}
    nothing = KernelClassifier().fit(X, [[]] * 60)
    assert nothing.predict(X[:2]) == [[], []]


# ---------------------------------------------------------------------------- thresholds, quality
def test_thresholds_have_the_highest_f1():
    rng = np.random.default_rng(0)
    scores, said = rng.normal(size=40), rng.integers(2, size=40).astype(float)
    said[:5] = np.nan
    counts = rng.integers(1, 4, size=40).astype(float)
    threshold, f1 = best_threshold(scores, said, counts)
    known = ~np.isnan(said)
    all_f1 = [
        f1_score(said[known], scores[known] >= one, sample_weight=counts[known])
        for one in scores[known]
    ]
    assert f1 == pytest.approx(max(all_f1))
    found = f1_score(said[known], scores[known] > threshold, sample_weight=counts[known])
    assert found == pytest.approx(f1)
    assert best_threshold(scores, np.zeros(40), counts) == (0.5, 0.0)


def test_probabilities_are_logistic_in_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4000)
    said = (rng.random(4000) < 1 / (1 + np.exp(1 - 2 * scores))).astype(float)
    assert fit_logistic(scores, said, np.ones(4000)) == pytest.approx((2, -1), abs=0.25)
    slope, offset = fit_logistic(scores, (scores > 0).astype(float), np.ones(4000))
    assert np.isfinite([slope, offset]).all()  # though any steeper one would fit better
    assert slope > 5


def test_what_is_left_out_is_what_the_others_predict():
    model = KernelClassifier().fit(X, Y)
    assert model.loo_kind_ == "leave-one-out"
    s, quality = model._state.solution, model._state.quality
    z = s.by(model._state.memory.embeddings(model._state.memory.order)).astype(np.float64)
    for i in range(0, 60, 7):
        others = np.arange(60) != i
        one = KernelRidge(alpha=s.noise, kernel="rbf", gamma=s.gamma)
        one.fit(z[others], quality.said[others])
        np.testing.assert_allclose(quality.scores[i], one.predict(z[i : i + 1])[0], atol=1e-8)
    assert KernelClassifier().fit(X, unsaid(Y)).loo_kind_ == "leave-one-out, estimated"


@pytest.mark.parametrize("many_sets", [True, False])
def test_too_many_rows_share_points(monkeypatch, many_sets):
    X_many, y_many = problem(n=900, seed=2)
    for name in ("solve", "tabled"):
        monkeypatch.setattr(f"dkvb.memory.{name}.MOST_POINTS", 400)
        monkeypatch.setattr(f"dkvb.memory.{name}.CHOICE_CELLS", 200)
        monkeypatch.setattr(f"dkvb.memory.{name}.HELD_OUT_ROWS", 100)
    monkeypatch.setattr("dkvb.memory.solve.JUDGED_ROWS", 300)
    monkeypatch.setattr("dkvb.memory.label_sets.MOST_SETS", 0 if many_sets else 100)
    model = KernelClassifier().fit(X_many, unsaid(y_many, 0.02))
    assert len(model._state.solution) <= 400
    assert (model._state.cells is not None) == many_sets
    assert f1_score(Y_TEST, model.predict(X_TEST), average="macro") > 0.75


# ------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_all_that_a_model_knows_is_in_its_file(tmp_path, form, keep):
    y = FORMS[form](Y)
    model = KernelClassifier(keep).fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    model.forget_samples(X[:2], y[:2])
    model.save(tmp_path / "model.safetensors")
    loaded = dkvb.load(tmp_path / "model.safetensors")
    assert alike(model, loaded)
    assert loaded.audit_ == model.audit_
    assert loaded.loo_score_ == pytest.approx(model.loo_score_)
    for one in (model, loaded):
        one.partial_fit(X_TEST[:5], FORMS[form](Y_TEST[:5]))
    assert alike(model, loaded)


def test_a_file_that_contradicts_itself_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    KernelClassifier().fit(X, Y).save(path)
    state = files.read(path, "estimator").state
    state.arrays["learned/sets/table"] = state.arrays["learned/sets/table"] + np.int8(3)
    files.write(path, "estimator", State(state.arrays, state.facts))
    with pytest.raises(FileError, match="table: expected 0, 1 and −1"):
        dkvb.load(path)


def test_a_frozen_model_predicts_and_cannot_change():
    model = KernelClassifier().fit(X, unsaid(Y))
    np.testing.assert_array_equal(model.freeze().predict(X_TEST), model.predict(X_TEST))
    with pytest.raises(ValueError, match="forget: expected a model that can change"):
        model.freeze().forget(1)


# ---------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("before", "y", "error", "message"),
    [
        (NAMES[Y[:, 0]], Y, ValueError, "y: expected one label for each example, as before"),
        (Y, NAMES[Y[:, 0]], ValueError, "y: expected sets of labels, as before.*put each in a li"),
        (Y, listed(Y), ValueError, "y: expected sets of labels as before, as a matrix.*convert"),
        (listed(Y), Y, ValueError, "y: expected sets of labels as before, as lists.*convert"),
        (Y, Y + 1, ValueError, r"y: expected 1 \(yes\), 0 \(no\) or NaN \(not said\)"),
        (Y, Y[:-1], ValueError, "y: expected 60 rows, one for each row of X; got 59"),
        (Y, Y[:, :3], ValueError, "y: expected a matrix of 4 columns.*got 3; name the columns"),
        (listed(Y), listed(Y)[1:], ValueError, "y: expected 60 lists of labels.*got 59"),
        (listed(Y), [["ant"]] * 59 + ["bee"], TypeError, "y: expected a list or set.*got 'bee'"),
        (listed(Y), [["ant", "ant"]] * 60, ValueError, "y: expected each label at most once"),
        (listed(Y), [[["ant"]]] * 60, ValueError, "y: expected a 1-d sequence of labels"),
        (listed(Y), [[1]] * 60, TypeError, "y: expected string labels like those before"),
    ],
)
def test_what_it_cannot_learn_is_refused_and_changes_nothing(before, y, error, message):
    model = KernelClassifier().fit(X, before)
    state = model._state
    with pytest.raises(error, match=message):
        model.partial_fit(X, y)
    assert model._state is state


def test_what_was_not_learned_cannot_be_unlearned():
    model = KernelClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="X, y: expected at most the examples that were learned"):
        model.forget_samples(X[:2], 1 - Y[:2])
    with pytest.raises(ValueError, match="y: expected labels learned before; got 'emu'"):
        KernelClassifier().fit(X, listed(Y)).forget_samples(X[:1], [["emu"]])


def test_models_that_do_not_fit_are_not_merged():
    with pytest.raises(ValueError, match="other: expected targets of the same kind"):
        KernelClassifier().fit(X, Y).merge(KernelClassifier().fit(X, Y[:, 0]))
    with pytest.raises(ValueError, match="other: expected sets of labels as before"):
        KernelClassifier().fit(X, Y).merge(KernelClassifier().fit(X, listed(Y)))


def test_what_needs_one_label_says_so():
    model = KernelClassifier().fit(X, Y, ids=np.arange(60))
    for name, call in {
        "ask": lambda: model.ask(X),
        "suspects": model.suspects,
        "confusion": model.confusion,
        "explain": lambda: model.explain(X[0]),
        "suggest": lambda: model.suggest(X_TEST, 3),
        "relabel": lambda: model.relabel(ids=[1], y_new=["ant"]),
    }.items():
        with pytest.raises(ValueError, match=f"{name}: expected a classifier that has learned on"):
            call()
    with pytest.raises(ValueError, match="novelty_threshold: expected None beside sets of labels"):
        KernelClassifier(novelty_threshold=0.9).fit(X, Y)
