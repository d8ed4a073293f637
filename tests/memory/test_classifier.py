"""The kernel classifier: order, merge, unlearning, updates, what it knows about itself."""

import logging
import pickle
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dkvb import fit_keys
from dkvb.memory import KernelClassifier
from dkvb.memory.solve import solve

from .problems import blobs, same_state

X, Y = blobs()
X_TEST, Y_TEST = blobs(seed=0, n=160)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_order_batching_split_and_merge_give_the_same_model(data):
    order = np.array(data.draw(st.permutations(range(len(X)))))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(X) - 1), min_size=1, max_size=4)))
    parts = [part for part in np.split(order, cuts) if len(part)]
    apart = data.draw(st.integers(0, len(parts) - 1))
    model, other = KernelClassifier(), KernelClassifier()
    for number, part in enumerate(parts):
        (other if number < apart else model).partial_fit(X[part], Y[part])
    if apart:
        model.merge(other)
    whole = KernelClassifier().fit(X, Y)
    assert same_state(model, whole)
    np.testing.assert_allclose(
        model.tune().decision_function(X_TEST), whole.decision_function(X_TEST), atol=1e-6
    )


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(0, len(X) - 1), min_size=1, max_size=40), st.booleans())
def test_unlearning_equals_never_having_learned(gone, by_ids):
    which = np.array(sorted(gone))
    kept = np.setdiff1d(np.arange(len(X)), which)
    model = KernelClassifier().partial_fit(X, Y, ids=np.arange(len(X)))
    if by_ids:
        model.forget_samples(ids=which)
    else:
        model.forget_samples(X[which], Y[which])
    never = KernelClassifier().fit(X[kept], Y[kept])
    assert same_state(model, never)
    np.testing.assert_array_equal(model.decision_function(X), never.decision_function(X))


def test_unlearning_a_class_equals_never_having_learned_it():
    model = KernelClassifier().fit(X, Y).forget("bee")
    never = KernelClassifier().fit(X[Y != "bee"], Y[Y != "bee"])
    assert same_state(model, never)
    np.testing.assert_array_equal(model.decision_function(X), never.decision_function(X))
    assert model.audit_[-1].operation == "forget"
    assert model.audit_[-1].rows == (Y == "bee").sum()


def test_relabelled_examples_are_as_if_learned_with_the_new_labels():
    new = np.where(Y[:7] == "ant", "bee", "emu")
    model = KernelClassifier().fit(X, Y).relabel(X[:7], Y[:7], new)
    assert same_state(model, KernelClassifier().fit(X, np.r_[new, Y[7:]]))


def test_more_examples_are_an_update_that_equals_a_new_solution():
    model = KernelClassifier().fit(X[:40], Y[:40])
    model.partial_fit(X[40:45], Y[40:45]).partial_fit(X[45:46], Y[45:46])
    model.partial_fit(X[:2], Y[:2]).partial_fit(X[:1], ["dog"])  # copies, and a new class
    solution = model._state.solution
    assert solution.inverse.count > 0
    again = solved_anew(model)
    np.testing.assert_allclose(solution.predict(X_TEST), again.predict(X_TEST), atol=1e-6)
    assert solution.diagonal.sum() == pytest.approx(again.diagonal.sum())


def solved_anew(model):
    """The solution of all that a model has learned, with its setting."""
    state = model._state
    s = state.solution
    return solve(state.memory, state.outputs, s.setting, s.chosen_for, s.by, s.gamma)


def test_a_copy_counts_as_often_as_it_was_learned():
    weight = np.random.default_rng(0).integers(0, 4, size=len(X))
    weighted = KernelClassifier().fit(X, Y, sample_weight=weight)
    repeated = KernelClassifier().fit(X.repeat(weight, axis=0), Y.repeat(weight))
    assert same_state(weighted, repeated)
    assert sum(weighted.class_count_.values()) == weight.sum()
    np.testing.assert_array_equal(weighted.predict(X_TEST), repeated.predict(X_TEST))


def test_leave_one_out_omits_all_copies():
    X_noise = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    y_noise = np.random.default_rng(1).integers(2, size=40)
    twice = KernelClassifier().fit(np.r_[X_noise, X_noise], np.r_[y_noise, y_noise])
    assert twice.loo_score_ < 0.8  # a copy left in would give its label away


def test_the_number_of_examples_must_double_before_the_choice_is_made_again():
    model = KernelClassifier().fit(X[:30], Y[:30])
    assert model.partial_fit(X[30:59], Y[30:59])._state.solution.chosen_for == 30
    assert model.partial_fit(X[59:], Y[59:])._state.solution.chosen_for == 60


def test_it_knows_how_good_it_is():
    X_many, y_many = blobs(n=1000, noise=1.0)
    model = KernelClassifier().fit(X_many[:300], y_many[:300])
    accuracy = model.score(X_many[300:], y_many[300:])
    assert abs(model.loo_score_ - accuracy) < 0.05
    assert model.loo_kind_ == "leave-one-out"
    confusion = model.confusion()
    assert confusion.sum() == 300
    assert np.trace(confusion) / 300 == pytest.approx(model.loo_score_)
    assert set(model.class_accuracy()) == {"ant", "bee", "cat"}
    probabilities = model.predict_proba(X_many[300:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    confidence = probabilities.max(axis=1).mean()
    assert abs(confidence - accuracy) < 0.05  # calibrated


def test_suspects_are_the_examples_with_wrong_labels():
    X_clear, y_clear = blobs(n=120, noise=0.2)
    wrong = np.arange(0, 120, 20)
    y_wrong = y_clear.copy()
    y_wrong[wrong] = np.where(y_clear[wrong] == "ant", "bee", "ant")
    model = KernelClassifier().fit(X_clear, y_wrong, ids=np.arange(120))
    suspects = model.suspects()
    assert {one.id for one in suspects[:6]} == set(wrong.tolist())
    assert [one.probability for one in suspects] == sorted(one.probability for one in suspects)
    first = suspects[0]
    model.relabel(first.x[None], [first.label], [first.predicted])
    assert first.id not in {one.id for one in model.suspects()}
    assert len(model.suspects(2)) <= 2


def test_suggestions_are_uncertain_differ_and_starve_no_class():
    model = KernelClassifier().fit(X, Y)
    picked = model.suggest(X_TEST, 12)
    assert len(set(picked.tolist())) == 12
    top = np.sort(model.predict_proba(X_TEST), axis=1)
    margin = top[:, -1] - top[:, -2]
    assert margin[picked].mean() < margin.mean()
    predicted = model.predict(X_TEST)
    assert set(predicted[picked]) == set(predicted)
    repeated = np.repeat(X_TEST[picked[:1]], 5, axis=0)
    both = np.concatenate([repeated, X_TEST[picked[1:4]]])
    assert len({int(i) for i in model.suggest(both, 4) if i < 5}) == 1
    assert len(model.suggest(X_TEST[:3], 10)) == 3


def test_an_explanation_names_the_examples_that_decided():
    model = KernelClassifier().fit(X, Y, ids=[f"photo-{i}" for i in range(len(X))])
    explanation = model.explain(X[0], n=len(X))
    assert explanation.label == model.predict(X[:1])[0]
    total = sum(one.contribution for one in explanation.influences)
    assert total == pytest.approx(explanation.scores.max())
    assert sum(one.share for one in explanation.influences) == pytest.approx(1)
    assert max(explanation.influences, key=lambda one: one.similarity).id == "photo-0"
    assert "photo-" in str(explanation)
    with pytest.raises(ValueError, match="expected one input; got 2"):
        model.explain(X[:2])


def test_inputs_above_the_novelty_threshold_are_unknown():
    rng = np.random.default_rng(0)
    far = (10 * rng.normal(size=(20, 6))).astype(np.float32)
    model = KernelClassifier(novelty_threshold=0.99).fit(X, Y)
    assert (model.novelty(X) == 0).all()
    assert (model.predict(X) != "unknown").all()
    assert (model.predict(far)[model.novelty(far) > 0.99] == "unknown").all()
    with pytest.raises(ValueError, match="expected no class 'unknown'"):
        model.partial_fit(X[:1], ["unknown"])


def test_a_declared_class_without_examples_is_never_predicted():
    model = KernelClassifier().partial_fit(X, Y, classes=["ant", "bee", "cat", "zebra"])
    assert model.classes_.tolist() == ["ant", "bee", "cat", "zebra"]
    assert (model.predict(X_TEST) != "zebra").all()
    assert (model.predict_proba(X_TEST)[:, 3] == 0).all()
    assert (model.predict_log_proba(X_TEST)[:, 3] == -np.inf).all()
    assert np.isfinite(model.predict_proba(X_TEST)).all()


def test_one_example_and_one_class_are_enough():
    model = KernelClassifier().partial_fit(X[:1], Y[:1])
    assert (model.predict(X) == Y[0]).all()
    assert model.novelty(X[:1]) < 1e-3
    assert (model.novelty(-X[:1]) > 0.9).all()
    model.partial_fit(X[1:3], Y[1:3])
    assert set(model.predict(X)) <= set(Y[:3])


def test_all_examples_can_be_unlearned_and_others_learned():
    model = KernelClassifier().fit(X, Y)
    for label in set(Y.tolist()):
        model.forget(label)
    with pytest.raises(NotFittedError, match="unlearned"):
        model.predict(X)
    model.partial_fit(X[:20], Y[:20])
    assert same_state(model, KernelClassifier().fit(X[:20], Y[:20]))


def test_a_frozen_copy_predicts_the_same_and_cannot_change():
    model = KernelClassifier().fit(X, Y)
    frozen = model.freeze()
    np.testing.assert_array_equal(frozen.predict_proba(X_TEST), model.predict_proba(X_TEST))
    for change in (
        lambda: frozen.partial_fit(X[:1], Y[:1]),
        lambda: frozen.forget("ant"),
        lambda: frozen.tune(),
        lambda: model.merge(frozen),
    ):
        with pytest.raises(ValueError, match="inference-only"):
            change()


def test_keys_give_their_conditioning():
    keys = fit_keys(X, n_codebooks=2, n_pairs=4, key_dim=2, conditioning="half-whitened")
    model = KernelClassifier(keys=keys).fit(X, Y)
    assert model.setting_["conditioning"] in ("none", "keys")
    np.testing.assert_array_equal(model._state.solution.by.centre, keys.conditioning.centre)
    assert model.score(X_TEST, Y_TEST) > 0.8
    with pytest.raises(ValueError, match="expected the same keys"):
        model.merge(KernelClassifier().fit(X, Y))
    with pytest.raises(ValueError, match="expected width 6"):
        clone(model).fit(X[:, :3], Y)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.partial_fit(X[:2], Y[:2], ids=[1]), ValueError, "ids: expected 2"),
        (lambda m: m.partial_fit(X[:2], Y[:2], ids=[1, 2.5]), TypeError, "strings or integers"),
        (lambda m: m.partial_fit(X[:2, :3], Y[:2]), ValueError, "3 features"),
        (lambda m: m.partial_fit(X[:2], [1, 2]), TypeError, "expected string labels"),
        (lambda m: m.forget_samples(X[:2] + 1, Y[:2]), ValueError, "got 2 others"),
        (lambda m: m.forget_samples(ids=["stranger"]), ValueError, "stranger"),
        (lambda m: m.forget_samples(X[:1], Y[:1], ids=[1]), ValueError, "either ids alone"),
        (lambda m: m.forget("zebra"), ValueError, "zebra"),
        (lambda m: m.relabel(X[:1] + 1, Y[:1], Y[:1]), ValueError, "got 1 others"),
        (lambda m: m.merge(m), ValueError, "count twice"),
        (lambda m: m.merge(3), TypeError, "got int"),
        (lambda m: KernelClassifier(keys=3).fit(X, Y), TypeError, "keys: expected Keys"),
        (lambda m: KernelClassifier(keep="rows").fit(X, Y), ValueError, "keep: expected one of"),
        (lambda m: KernelClassifier(novelty_threshold=2).fit(X, Y), ValueError, "novelty_thresh"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, error, message):
    model = KernelClassifier().fit(X, Y)
    before = model._state
    with pytest.raises(error, match=message):
        call(model)
    assert model._state is before


def test_labels_of_all_kinds_are_given_back_as_they_came():
    for labels in (np.arange(60) % 3, np.arange(60) % 2 == 0, (np.arange(60) % 3).astype(float)):
        model = KernelClassifier().fit(X, labels)
        assert model.predict(X).dtype == labels.dtype


def test_a_model_is_pickled_and_cloned():
    model = KernelClassifier(novelty_threshold=0.9).fit(X, Y)
    content = pickle.dumps(model)
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.predict(X_TEST), model.predict(X_TEST))
    assert clone(model).novelty_threshold == 0.9
    model.partial_fit(X_TEST, Y_TEST)
    again.partial_fit(X_TEST, Y_TEST)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-8)


def test_a_pickle_holds_no_matrix_of_all_examples():
    rng = np.random.default_rng(0)
    model = KernelClassifier().fit(rng.normal(size=(600, 4)), np.arange(600) % 2)
    assert len(pickle.dumps(model)) < 8 * 600 * 600 / 4


def test_many_examples_are_solved_on_first_use_and_by_one_thread(monkeypatch, caplog):
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 20)
    model = KernelClassifier().partial_fit(X, Y)
    assert model._state.solution is None
    caplog.set_level(logging.INFO, logger="dkvb.memory")
    threads = [Thread(target=model.predict, args=(X,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model._state.solution is not None
    assert len([r for r in caplog.records if "chosen by leaving out" in r.message]) == 1
