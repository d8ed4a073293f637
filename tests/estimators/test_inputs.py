"""What `BottleneckClassifier` takes as scikit-learn's own classifiers do, and where it ends."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dkvb import BottleneckClassifier, fit_keys
from dkvb._support import memory
from dkvb.estimators import parameters
from dkvb.rules import base

from .settings import blobs

RULES = ("counts", "least_squares", "sgd")
X, NUMBERS = blobs(3, a_class=20)
Y = np.array(["ant", "bee", "cat"])[NUMBERS]
KEYS = fit_keys(X, n_codebooks=4, n_pairs=8, key_dim=3, epochs=2)


def same_bits(first, second):
    ours, theirs = first.state_tensors(), second.state_tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.mark.parametrize("rule", RULES)
def test_fit_takes_weights(rule):
    weight = np.arange(len(X)) % 3
    weighted = BottleneckClassifier(KEYS, rule=rule).fit(X, Y, sample_weight=weight)
    chosen = np.repeat(np.arange(len(X)), weight)
    assert same_bits(weighted, BottleneckClassifier(KEYS, rule=rule).fit(X[chosen], Y[chosen]))
    again = BottleneckClassifier(KEYS, rule=rule).fit(X, Y, torch.as_tensor(weight).double())
    assert same_bits(weighted, again)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (0.5, "sample_weight: expected whole numbers .* scale and round them"),
        (parameters.MOST_ROWS, "sample_weight: expected at most 1000000000 rows .* divide"),
        (2**62, "sample_weight: expected at most 1000000000 rows .* divide"),
        (0, "sample_weight: expected a row that counts"),
    ],
)
def test_weights_that_are_refused_change_nothing(weight, message):
    classifier = BottleneckClassifier(KEYS).fit(X, Y)
    before = classifier.class_count_
    with pytest.raises(ValueError, match=message):
        classifier.partial_fit(X, Y, sample_weight=np.full(len(X), weight))
    assert classifier.class_count_ == before


def test_weights_are_routed():
    weight = np.ones(len(X))
    weight[::2] = 0
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = BottleneckClassifier(KEYS).set_fit_request(sample_weight=True)
        classifier.set_score_request(sample_weight=True)
        scaler = StandardScaler(with_mean=False, with_std=False)
        pipeline = make_pipeline(scaler.set_fit_request(sample_weight=False), classifier)
        found = pipeline.fit(X, Y, sample_weight=weight)
        assert sum(found[-1].class_count_.values()) == len(X) // 2
        scored = cross_validate(
            pipeline, X, Y, cv=2, params={"sample_weight": weight}, error_score="raise"
        )
    assert len(scored["test_score"]) == 2


@pytest.mark.parametrize("rule", RULES)
def test_logarithms_of_probabilities(rule):
    classifier = BottleneckClassifier(KEYS, rule=rule)
    classifier.partial_fit(X, Y, classes=["ant", "bee", "cat", "dog"])
    logs = classifier.predict_log_proba(X)
    assert np.allclose(np.exp(logs), classifier.predict_proba(X))
    assert logs.shape == (len(X), 4)


@pytest.mark.parametrize("rule", RULES)
def test_tensors_of_any_kind_are_taken(rule):
    # In steps of 1/4, which bfloat16 holds.
    rows = np.round(X * 4) / 4
    plain = BottleneckClassifier(KEYS, rule=rule).fit(rows, NUMBERS)
    for x in (
        torch.tensor(rows, requires_grad=True),
        torch.tensor(rows).bfloat16(),
        torch.tensor(rows).half(),
        torch.tensor(rows).double(),
    ):
        twin = BottleneckClassifier(KEYS, rule=rule).fit(x, torch.as_tensor(NUMBERS))
        assert same_bits(twin, plain)
        assert np.array_equal(twin.predict(x), plain.predict(rows))
        assert np.array_equal(twin.novelty(x), plain.novelty(rows))
        assert str(twin.explain(x[0])) == str(plain.explain(rows[0]))
    own = BottleneckClassifier({"n_codebooks": 4, "n_pairs": 8}, rule=rule)
    assert same_bits(own.fit(x, NUMBERS), own.fit(rows, NUMBERS))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_tensors_on_cuda_are_taken():
    plain = BottleneckClassifier(KEYS).fit(X, NUMBERS)
    x, y = torch.tensor(X).cuda(), torch.as_tensor(NUMBERS).cuda()
    assert same_bits(BottleneckClassifier(KEYS).fit(x, y), plain)
    assert np.array_equal(plain.predict(x), plain.predict(X))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_batch_of_the_cpu_is_read_on_cuda():
    """Rows whose keys were never used are picked by a tensor on the GPU."""
    model = BottleneckClassifier(KEYS, rule="sgd", device="cuda").fit(X[:3], NUMBERS[:3])
    batch = model.batch(torch.tensor(X))
    assert len(batch.codes) == len(X)
    assert np.array_equal(model.predict(batch), model.predict(X))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_a_batch_is_made_before_anything_is_learned(kind):
    rows = kind(X)
    model = BottleneckClassifier(KEYS)
    plain = BottleneckClassifier(KEYS).fit(X, NUMBERS)
    assert same_bits(model.fit(model.batch(rows), NUMBERS), plain)


@pytest.mark.parametrize("rule", RULES)
def test_more_classes_than_can_be_counted(rule, monkeypatch):
    monkeypatch.setattr(base, "MOST_CLASSES", 2)
    classifier = BottleneckClassifier(KEYS, rule=rule)
    with pytest.raises(ValueError, match="y: expected at most 2 classes in a model; got 3"):
        classifier.partial_fit(X, Y)
    assert not hasattr(classifier, "classes_")


@pytest.mark.parametrize("rule", ["counts", "least_squares"])
def test_more_rows_than_can_be_counted(rule, monkeypatch):
    monkeypatch.setattr(base, "MOST_OF_A_CLASS", 25)
    first = BottleneckClassifier(KEYS, rule=rule).fit(X, Y)
    second = BottleneckClassifier(KEYS, rule=rule).fit(X, Y)
    before = first.state_tensors()
    for change in (lambda: first.partial_fit(X, Y), lambda: first.merge(second)):
        with pytest.raises(ValueError, match="expected at most 25 rows of one class; got 40"):
            change()
    assert all(torch.equal(before[name], now) for name, now in first.state_tensors().items())


@pytest.mark.parametrize("rule", ["least_squares", "sgd"])
def test_what_does_not_fit_into_memory_is_refused_in_one_line(rule, monkeypatch):
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device: 100)
    classifier = BottleneckClassifier(KEYS, rule=rule)
    with pytest.raises(
        MemoryError, match=r"would keep .* and 100 bytes are free; .*; use"
    ) as error:
        classifier.partial_fit(X, Y)
    assert "\n" not in str(error.value)
    assert not hasattr(classifier, "classes_")


def test_so_many_classes_do_not_fit_into_memory(monkeypatch):
    classifier = BottleneckClassifier(KEYS, rule="least_squares").fit(X, Y)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device: 100_000)
    with pytest.raises(MemoryError, match=r"32 pairs with 203 classes: .* it takes 207.9 kB, and"):
        classifier.partial_fit(X[:1], Y[:1], classes=[f"class {i}" for i in range(200)] + ["ant"])
    assert len(classifier.classes_) == 3
