"""Batched training gives the records of single runs."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import numpy as np
import pytest
import torch

from dkvb.estimators.registry import (
    EWCClassifier,
    LinearClassifier,
    MLPClassifier,
    PrototypesClassifier,
    SDMLPClassifier,
)
from dkvb.evaluation.batched_training import Run, train_batched
from dkvb.evaluation.runner import evaluate
from dkvb.evaluation.streams import class_incremental, from_tasks, iid


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(6, 5))
    parts = []
    for n in (90, 48):
        y = rng.permutation(np.repeat(np.arange(6), n // 6))
        parts.append(((centres[y] + rng.normal(size=(n, 5))).astype(np.float32), y))
    return parts


def assert_same(ours, expected):
    """Equal records but for times, to the rounding of float32."""
    for name in ("classifier", "stream", "seed", "classes", "tasks", "versions"):
        assert getattr(ours, name) == getattr(expected, name)
    assert ours.config["params"] == expected.config["params"]
    assert len(ours.curve) == len(expected.curve)
    for own, other in zip(ours.curve, expected.curve, strict=True):
        a, b = dataclasses.asdict(own), dataclasses.asdict(other)
        assert a.keys() == b.keys()
        for name in a:
            assert a[name] == pytest.approx(b[name], abs=2e-5), name
    assert ours.accuracy_matrix == expected.accuracy_matrix
    assert ours.metrics == pytest.approx(expected.metrics, abs=2e-5)
    assert ours.extra == expected.extra


def alone(run, data, **settings):
    name, seed, config = run.name, run.seed, run.config
    fresh = type(run.classifier)(**run.classifier.get_params())
    return evaluate(
        lambda: fresh, run.stream, *data, name=name, seed=seed, config=config, **settings
    )


def runs_of(cls, y, rate=1.0, **settings):
    """Seeds, rates, decays and smoothings that differ, in class-incremental and iid order."""
    own = [
        {"random_state": 1, "learning_rate": 0.3 * rate},
        {"random_state": 2, "learning_rate": 0.1 * rate, "weight_decay": 0.1},
        {"random_state": 2, "learning_rate": 0.2 * rate, "label_smoothing": 0.0},
    ]
    orders = [lambda seed: class_incremental(y, seed=seed), lambda seed: iid(y, seed)]
    return [
        Run(cls(**settings | values), order(values["random_state"]), f"run {i}", 100 + i, {"i": i})
        for i, values in enumerate(own)
        for order in orders
    ]


ADAM = {"optimizer": "adam", "rate": 0.1}


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (LinearClassifier, {}),
        (LinearClassifier, ADAM),
        (LinearClassifier, {"bias": False}),
        (MLPClassifier, {"hidden": 7}),
        (MLPClassifier, {"hidden": 7, **ADAM}),
        (EWCClassifier, {"hidden": 7, "ewc_strength": 5.0}),
        (EWCClassifier, {"hidden": 7, "ewc_strength": 5.0, "boundary": "told"}),
        # Not with Adam, which makes whole steps of gradients that are rounding and nothing else.
        (SDMLPClassifier, {"n_neurons": 30, "k": 4, "switch_after": 100}),
        (SDMLPClassifier, {"n_neurons": 30, "k": 4, "ewc_strength": 5.0}),
    ],
)
def test_a_stack_gives_the_records_of_single_runs(data, cls, settings):
    runs = runs_of(cls, data[0][1], epochs=5, batch_size=8, **settings)
    expected = [alone(run, data, evaluate_every=2) for run in runs]
    records = train_batched(runs, *data, evaluate_every=2)
    assert [record.config["batched_runs"] for record in records] == [3] * len(runs)
    assert [record.config["i"] for record in records] == [0, 0, 1, 1, 2, 2]
    for record, other in zip(records, expected, strict=True):
        assert_same(record, other)


def test_groups_are_formed_by_architecture_and_sizes_of_tasks(data):
    y = data[0][1]
    pairs, uneven = class_incremental(y, 2, seed=1), class_incremental(y, 4, seed=1)
    runs = [
        Run(LinearClassifier(epochs=2), pairs),
        Run(LinearClassifier(epochs=2, learning_rate=0.1), uneven),
        Run(MLPClassifier(epochs=2, hidden=4), pairs),
        Run(LinearClassifier(epochs=2, weight_decay=0.1), pairs),
        Run(LinearClassifier(epochs=2, bias=False), pairs),
        Run(LinearClassifier(epochs=3), pairs),
        Run(SDMLPClassifier(n_neurons=30), pairs),
        Run(SDMLPClassifier(n_neurons=30, ewc_strength=1.0), pairs),
        Run(SDMLPClassifier(n_neurons=30, ewc_strength=2.0), pairs),
    ]
    records = train_batched(runs, *data, final_only=True)
    assert [record.config["batched_runs"] for record in records] == [2, 1, 1, 2, 1, 1, 1, 2, 2]
    for run, record in zip(runs, records, strict=True):
        assert_same(record, alone(run, data, final_only=True))
        assert len(record.curve) == 1


def test_classifiers_are_fitted_in_the_end_and_go_their_own_ways(data):
    (X, y), (X_test, _) = data
    runs = runs_of(LinearClassifier, y, epochs=3)
    records = train_batched(runs, *data, memory=True)
    first, second = runs[0].classifier, runs[2].classifier
    single = LinearClassifier(**first.get_params())
    for task in runs[0].stream:
        single.partial_fit(X[task.indices], y[task.indices], classes=np.unique(y))
    assert np.allclose(first.decision_function(X_test), single.decision_function(X_test), atol=1e-5)
    before = second.decision_function(X_test)
    for model in (first, single):
        model.partial_fit(X, y)
    assert np.allclose(first.decision_function(X_test), single.decision_function(X_test), atol=1e-5)
    assert np.array_equal(second.decision_function(X_test), before)
    # What is kept of a model is its own, not that of all who learned beside it.
    assert records[2].metrics["memory_bytes"] > 0
    own = runs[2].classifier._weights["output weight"]
    assert own.untyped_storage().nbytes() == own.nbytes


def test_how_work_is_cut_does_not_matter(data, monkeypatch):
    def scores():
        runs = runs_of(LinearClassifier, data[0][1], epochs=7, batch_size=4)
        train_batched(runs, *data)
        return [run.classifier.decision_function(data[1][0]) for run in runs]

    whole = scores()
    monkeypatch.setattr("dkvb.baselines.batched.STEPS_PER_GRAPH", 2)
    monkeypatch.setattr("dkvb.baselines.batched._ORDERS_AT_ONCE", 100)
    assert all(map(np.array_equal, scores(), whole))


def test_rows_may_be_tensors_and_labels_words(data):
    (X, y), (X_test, y_test) = data
    words = np.array(["elk", "ant", "dog", "bee", "cat", "fox"])
    run = Run(LinearClassifier(epochs=2), class_incremental(words[y], seed=2))
    both = (X, words[y]), (X_test, words[y_test])
    expected = alone(run, both)
    tensors = [(torch.from_numpy(rows), labels) for rows, labels in both]
    assert_same(train_batched([run], *tensors)[0], expected)
    assert run.classifier.predict(X_test).dtype.kind == "U"


def test_what_cannot_be_stacked_is_refused(data):
    (X, y), _ = data
    stream = iid(y)
    fitted = LinearClassifier().fit(X, y)
    for classifier, error, says in (
        (fitted, ValueError, "unfitted"),
        (PrototypesClassifier(), TypeError, "gradient descent; got PrototypesClassifier"),
        (LinearClassifier(epochs=0), ValueError, "epochs"),
    ):
        other = LinearClassifier()
        with pytest.raises(error, match=says):
            train_batched([Run(other, stream), Run(classifier, stream)], *data)
        assert not hasattr(other, "classes_")
    with pytest.raises(ValueError, match="stream: expected indices of the training data"):
        train_batched([Run(LinearClassifier(), iid(np.arange(1000)))], *data)
    with pytest.raises(ValueError, match="NaN"):
        train_batched([Run(LinearClassifier(), stream)], (X * np.nan, y), data[1])
    with pytest.raises(ValueError, match="evaluate_every"):
        train_batched([Run(LinearClassifier(), stream)], *data, evaluate_every=0)
    assert train_batched([], *data) == []


def test_own_tasks_of_one_size(data):
    y = data[0][1]
    streams = [
        from_tasks(y, indices=[range(40), range(30, 70)]),
        from_tasks(y, indices=[range(40)] * 2),
    ]
    runs = [Run(LinearClassifier(epochs=2), stream) for stream in streams]
    records = train_batched(runs, *data)
    assert [record.config["batched_runs"] for record in records] == [2, 2]
    for run, record in zip(runs, records, strict=True):
        assert_same(record, alone(run, data))


def test_the_benchmark_finds_stacks_to_be_right():
    assert import_module("benchmarks.batched").check("cpu") == 0
