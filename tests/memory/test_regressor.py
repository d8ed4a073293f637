"""The kernel regressor: an oracle, order, merge, unlearning, files, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkvb
from dkvb import KernelClassifier, KernelRegressor, fit_keys
from dkvb._support import files
from dkvb._support.files import FileError, State


def problem(n=60, width=4, seed=0):
    """Embeddings (n, width), and two numbers (n, 2) that depend on them smoothly."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width)).astype(np.float32)
    y = np.column_stack([X[:, 0] + np.sin(2 * X[:, 1]), 100 + 10 * X[:, 2] * X[:, 3]])
    return X, y + rng.normal(scale=0.1, size=y.shape)


X, PAIRS = problem()
Y = PAIRS[:, 0]
X_TEST, PAIRS_TEST = problem(n=200, seed=1)


def same_state(a, b):
    one, other = a.state_arrays(), b.state_arrays()
    return one.keys() == other.keys() and all(
        one[name].tobytes() == other[name].tobytes() for name in one
    )


def oracle(model, X_learned, y_learned):
    """Scikit-learn's kernel ridge regression with the setting of a model."""
    s = model._state.solution
    ridge = KernelRidge(alpha=s.noise, kernel="rbf", gamma=s.gamma)
    mean = y_learned.mean(axis=0)
    ridge.fit(s.by(X_learned).astype(np.float64), y_learned - mean)
    return lambda inputs: mean + ridge.predict(s.by(inputs).astype(np.float64))


@pytest.mark.parametrize("y", [Y, PAIRS], ids=["one number", "two"])
def test_it_is_kernel_ridge_regression_around_the_mean(y):
    X_kept = X.astype(np.float16).astype(np.float32)  # as embeddings are kept
    model = KernelRegressor().fit(X_kept, y)
    np.testing.assert_allclose(model.predict(X_TEST), oracle(model, X_kept, y)(X_TEST), atol=1e-8)


def test_what_was_learned_since_is_reckoned_with_as_if_from_the_start():
    X_kept = X.astype(np.float16).astype(np.float32)
    model = KernelRegressor().fit(X_kept[:40], PAIRS[:40])
    model.partial_fit(X_kept[40:], PAIRS[40:] + 7)  # the mean has moved
    y = np.r_[PAIRS[:40], PAIRS[40:] + 7]
    assert model._state.solution.chosen_for == 40
    np.testing.assert_allclose(model.predict(X_TEST), oracle(model, X_kept, y)(X_TEST), atol=1e-6)


def test_what_is_left_out_is_what_the_others_predict():
    X_kept = X.astype(np.float16).astype(np.float32)
    model = KernelRegressor().fit(X_kept, Y)
    predicted = []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        predicted.append(oracle(model, X_kept[others], Y[others])(X_kept[i : i + 1])[0])
    assert model.loo_score_ == pytest.approx(r2_score(Y, predicted), abs=1e-9)
    assert model.loo_kind_ == "leave-one-out"
    assert model.setting_["score"] == model.loo_score_


def test_it_knows_how_good_it_is():
    X_many, y_many = problem(n=600, seed=3)
    model = KernelRegressor().fit(X_many[:300], y_many[:300])
    assert abs(model.loo_score_ - model.score(X_many[300:], y_many[300:])) < 0.08
    assert model.score(X_many[300:], y_many[300:]) > 0.7


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_order_batching_split_and_merge_give_the_same_model(data):
    y = np.round(PAIRS)  # some numbers more than once
    order = np.array(data.draw(st.permutations(range(len(X)))))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(X) - 1), min_size=1, max_size=4)))
    parts = [part for part in np.split(order, cuts) if len(part)]
    apart = data.draw(st.integers(0, len(parts) - 1))
    model, other = KernelRegressor(), KernelRegressor()
    for number, part in enumerate(parts):
        (other if number < apart else model).partial_fit(X[part], y[part])
    if apart:
        model.merge(other)
    whole = KernelRegressor().fit(X, y)
    assert same_state(model, whole)
    np.testing.assert_array_equal(model.tune().predict(X_TEST), whole.predict(X_TEST))


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(0, len(X) - 1), min_size=1, max_size=40))
def test_unlearning_equals_never_having_learned(gone):
    which = np.array(sorted(gone))
    kept = np.setdiff1d(np.arange(len(X)), which)
    model = KernelRegressor().partial_fit(X, Y).forget_samples(X[which], Y[which])
    never = KernelRegressor().fit(X[kept], Y[kept])
    assert same_state(model, never)
    np.testing.assert_array_equal(model.predict(X_TEST), never.predict(X_TEST))
    assert model.loo_score_ == never.loo_score_


def test_among_many_examples_unlearning_corrects_the_solution(monkeypatch):
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 0)
    X_kept = X.astype(np.float16).astype(np.float32)
    model = KernelRegressor().fit(X_kept, PAIRS)
    by = model._state.solution.by
    model.forget_samples(X_kept[:3], PAIRS[:3])
    assert model._state.solution.by is by  # nothing was chosen again
    expected = oracle(model, X_kept[3:], PAIRS[3:])(X_TEST)
    np.testing.assert_allclose(model.predict(X_TEST), expected, atol=1e-6)


def test_all_may_be_unlearned_and_other_targets_learned():
    model = KernelRegressor().fit(X, Y).forget_samples(X, Y)
    with pytest.raises(NotFittedError, match="learn something first"):
        model.predict(X)
    assert model.partial_fit(X, PAIRS).predict(X).shape == PAIRS.shape


@settings(max_examples=10, deadline=None)
@given(st.floats(-1e6, 1e6))
def test_a_constant_added_to_numbers_is_added_to_predictions(constant):
    model, moved = KernelRegressor().fit(X, Y), KernelRegressor().fit(X, Y + constant)
    np.testing.assert_allclose(
        moved.predict(X_TEST), model.predict(X_TEST) + constant, atol=1e-8 * (1 + abs(constant))
    )


def test_a_copy_counts_as_often_as_it_was_learned():
    weight = np.random.default_rng(0).integers(0, 4, size=len(X))
    weighted = KernelRegressor().fit(X, Y, sample_weight=weight)
    repeated = KernelRegressor().fit(X.repeat(weight, axis=0), Y.repeat(weight))
    assert same_state(weighted, repeated)
    assert weighted.n_samples_ == weight.sum()
    np.testing.assert_array_equal(weighted.predict(X_TEST), repeated.predict(X_TEST))


def test_predictions_have_the_form_of_what_was_learned():
    assert KernelRegressor().fit(X, Y).predict(X[:3]).shape == (3,)
    assert KernelRegressor().fit(X, Y[:, None]).predict(X[:3]).shape == (3, 1)
    named = KernelRegressor().fit(pd.DataFrame(X, columns=list("abcd")), pd.Series(Y))
    assert named.feature_names_in_.tolist() == list("abcd")


def test_constant_numbers_are_predicted():
    np.testing.assert_allclose(KernelRegressor().fit(X, np.full(60, 7.0)).predict(X_TEST), 7)
    assert KernelRegressor().fit(X[:1], [3.0]).predict(X_TEST[:2]).tolist() == [3, 3]


def test_keys_give_their_conditioning():
    keys = fit_keys(X, n_codebooks=1, n_pairs=4, key_dim=3, method="lloyd", epochs=2)
    model = KernelRegressor(keys).fit(X, Y)
    assert model.setting_["conditioning"] in ("none", "keys")
    other = KernelRegressor().fit(X_TEST, PAIRS_TEST[:, 0])
    with pytest.raises(ValueError, match="other: expected the same keys"):
        model.merge(other)


# ------------------------------------------------------------------------------------------ many
@pytest.fixture
def few_points(monkeypatch):
    """Settings under which 700 rows are too many to solve for."""
    for name in ("solve", "tabled"):
        monkeypatch.setattr(f"dkvb.memory.{name}.MOST_POINTS", 600)
        monkeypatch.setattr(f"dkvb.memory.{name}.CHOICE_CELLS", 300)
        monkeypatch.setattr(f"dkvb.memory.{name}.HELD_OUT_ROWS", 200)
    monkeypatch.setattr("dkvb.memory.solve.JUDGED_ROWS", 500)
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 0)


X_MANY, PAIRS_MANY = problem(n=1500, seed=5)
PAIRS_MANY += np.random.default_rng(6).normal(size=PAIRS_MANY.shape) * [2, 10]  # as much noise


EXACT = KernelRegressor().fit(X_MANY, PAIRS_MANY)


def test_of_too_many_rows_those_that_lie_together_share_a_point(few_points):
    model = KernelRegressor().fit(X_MANY, PAIRS_MANY)
    assert len(model._state.solution) == 600
    assert model.loo_kind_ == "held-out"
    assert model.score(X_TEST, PAIRS_TEST) > EXACT.score(X_TEST, PAIRS_TEST) - 0.08
    assert abs(model.loo_score_ - EXACT.loo_score_) < 0.08
    again = KernelRegressor().partial_fit(X_MANY[::-1], PAIRS_MANY[::-1]).tune()
    np.testing.assert_array_equal(model.predict(X_TEST), again.predict(X_TEST))


def test_cells_learn_and_forget(few_points):
    model = KernelRegressor().fit(X_MANY, PAIRS_MANY)
    before = model.predict(X_TEST)
    model.partial_fit(X_TEST[:20], PAIRS_TEST[:20] + 50)
    assert (model.predict(X_TEST[:20]) > before[:20] + 0.5).all()
    model.forget_samples(X_TEST[:20], PAIRS_TEST[:20] + 50)
    np.testing.assert_allclose(model.predict(X_TEST), before, atol=1e-4)
    model.forget_samples(X_MANY[:30], PAIRS_MANY[:30])
    model.partial_fit(X_MANY[:30], PAIRS_MANY[:30])
    assert model._state.solution.chosen_for == len(X_MANY)  # all was corrected, and never chosen
    np.testing.assert_allclose(model.predict(X_TEST), before, rtol=0.3, atol=1)


def test_settings_of_many_rows_are_chosen_on_some(monkeypatch):
    X_many, y_many = problem(n=700, seed=5)
    monkeypatch.setattr("dkvb.memory.choose.KERNEL_POINTS", 200)
    monkeypatch.setattr("dkvb.memory.choose.LAMBDA_POINTS", 300)
    monkeypatch.setattr("dkvb.memory.solve.ALL_LEFT_OUT", 500)
    monkeypatch.setattr("dkvb.memory.solve.JUDGED_ROWS", 400)
    model = KernelRegressor().fit(X_many, y_many)
    assert len(model._state.solution.judged.which) == 400
    assert abs(model.loo_score_ - model.score(X_TEST, PAIRS_TEST)) < 0.1


# ----------------------------------------------------------------------------------------- files
def test_all_that_a_model_knows_is_in_its_file(tmp_path):
    model = KernelRegressor().fit(X[:40], PAIRS[:40])
    model.partial_fit(X[40:], PAIRS[40:]).forget_samples(X[:2], PAIRS[:2])
    model.save(tmp_path / "model.safetensors")
    loaded = dkvb.load(tmp_path / "model.safetensors")
    assert type(loaded) is KernelRegressor
    assert same_state(model, loaded)
    assert loaded.audit_ == model.audit_
    assert loaded.setting_ == model.setting_
    np.testing.assert_allclose(loaded.predict(X_TEST), model.predict(X_TEST), atol=1e-9)
    for one in (model, loaded):
        one.partial_fit(X_TEST[:5], PAIRS_TEST[:5])
    np.testing.assert_allclose(loaded.predict(X_TEST), model.predict(X_TEST), atol=1e-6)
    with pytest.raises(FileError, match="expected a KernelClassifier"):
        KernelClassifier.load(tmp_path / "model.safetensors")


def test_cells_are_in_the_file(tmp_path, few_points):
    model = KernelRegressor().fit(X_MANY[::-1], PAIRS_MANY[::-1])
    model.partial_fit(X_TEST[:20], PAIRS_TEST[:20])
    model.save(tmp_path / "model.safetensors")
    loaded = KernelRegressor.load(tmp_path / "model.safetensors")
    assert loaded.loo_score_ == pytest.approx(model.loo_score_)
    np.testing.assert_allclose(loaded.predict(X_TEST), model.predict(X_TEST), atol=1e-9)
    for one in (model, loaded):
        one.forget_samples(X_MANY[:5], PAIRS_MANY[:5])
    np.testing.assert_allclose(
        loaded.predict(X_TEST), model.predict(X_TEST), atol=2
    )  # of 100: one is corrected, the other solved anew


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("learned/memory/targets", lambda a: a + 99, "targets"),
        ("learned/numbers/table", lambda a: a * np.nan, "table: expected finite"),
        ("learned/numbers/scale/unit", lambda a: 0 * a, "unit: expected numbers above 0"),
        ("learned/solution/alpha", lambda a: a[:, 1:], "alpha"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, name, change, message):
    path = tmp_path / "model.safetensors"
    KernelRegressor().fit(X, Y).save(path)
    state = files.read(path, "estimator").state
    state.arrays[name] = np.ascontiguousarray(change(state.arrays[name]))
    files.write(path, "estimator", State(state.arrays, state.facts))
    with pytest.raises(FileError, match=message):
        dkvb.load(path)


# ---------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("rows", "numbers", "error", "message"),
    [
        (X, Y[:-1], ValueError, r"y: expected shape \(60,\) or \(60, t\).*got shape \(59,\)"),
        (X, np.where(Y > 1, np.nan, Y), ValueError, "y: expected finite numbers.*drop those rows"),
        (X, Y * 1e200, ValueError, "y: expected numbers between .*scale them"),
        (X, np.repeat("a", 60), TypeError, "y: expected numbers; got dtype .*convert to float64"),
        (X, PAIRS, ValueError, "y: expected one number for each example, as before; got shape"),
        (X[:, :2], Y, ValueError, "2 features"),
    ],
)
def test_what_it_cannot_learn_is_refused_and_changes_nothing(rows, numbers, error, message):
    model = KernelRegressor().fit(X, Y)
    before = model._state
    with pytest.raises(error, match=message):
        model.partial_fit(rows, numbers)
    assert model._state is before


def test_what_was_not_learned_cannot_be_unlearned():
    model = KernelRegressor().fit(X, Y)
    before = model._state
    for rows, numbers in ((X[:2], Y[:2] + 1), (X[:2], Y[1:3]), (X[[0, 0]], Y[[0, 0]])):
        with pytest.raises(ValueError, match="X, y: expected at most the examples that were le"):
            model.forget_samples(rows, numbers)
    assert model._state is before


def test_models_that_do_not_fit_are_not_merged():
    model = KernelRegressor().fit(X, Y)
    with pytest.raises(ValueError, match="other: expected one number for each example; got rows"):
        model.merge(KernelRegressor().fit(X, PAIRS))
    with pytest.raises(ValueError, match="other: expected embeddings of width 4; got 2"):
        model.merge(KernelRegressor().fit(X[:, :2], Y))
    with pytest.raises(TypeError, match="other: expected a KernelRegressor; got KernelClassifier"):
        model.merge(KernelClassifier().fit(X, Y > 0))
    with pytest.raises(ValueError, match="other: expected another model"):
        model.merge(model)


def test_a_frozen_model_predicts_and_cannot_change():
    model = KernelRegressor().fit(X, Y)
    frozen = model.freeze()
    np.testing.assert_array_equal(frozen.predict(X_TEST), model.predict(X_TEST))
    with pytest.raises(ValueError, match="partial_fit: expected a model that can change"):
        frozen.partial_fit(X, Y)


def test_keys_must_be_keys():
    with pytest.raises(TypeError, match="keys: expected Keys or None; got str"):
        KernelRegressor(keys="mine").fit(X, Y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([KernelRegressor()])
def test_scikit_learn_check(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it, scikit-learn skips a check
    check(estimator)
