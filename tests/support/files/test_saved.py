"""What is loaded is what was saved: it answers the same and goes on the same, to the last bit."""

import os
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import dkvb
from dkvb import BottleneckClassifier, Keys, KeyValueBottleneck, fit_keys
from dkvb._support import files
from dkvb._support.files import FileError
from dkvb.bottleneck.serialisation import bottleneck_state
from dkvb.estimators.registry import LinearClassifier, load_classifier

from .models import (
    BOTTLENECKS,
    EVERY,
    NAMED,
    answers,
    assert_same,
    bottleneck,
    keys,
    make,
    rows,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model"


def reload(model, path):
    model.save(path)
    assert b"pickle" not in path.read_bytes()
    return type(model).load(path)


@pytest.mark.parametrize("name", EVERY)
def test_loaded_equals_saved_and_goes_on_the_same(name, path):
    (X, y), (X_more, y_more) = rows(0, classes=2), rows(1, classes=4)
    model = make(name)
    if name == "regressor":
        X, y = rows(0)
    model.partial_fit(X, y)
    again = reload(model, path)
    assert_same(model, again, X_more)
    for one in (model, again):
        one.partial_fit(X_more, y_more)
    assert_same(model, again, X_more)
    assert_same(model, reload(model, path), X_more)
    if name != "regressor":
        assert type(load_classifier(path)) is type(model)


@pytest.mark.parametrize("name", EVERY)
def test_before_learning(name, path):
    model = make(name)
    again = reload(model, path)
    X, y = rows()
    for one in (model, again):
        one.fit(X, y)
    assert_same(model, again, X)


@pytest.mark.parametrize("name", BOTTLENECKS)
def test_keys_that_grew(name, path):
    X, y = rows()
    model = bottleneck(name).fit(X[:30], y[:30]).grow_keys(3 * X).partial_fit(X[30:], y[30:])
    again = reload(model, path)
    assert again.keys_.fingerprint == model.keys_.fingerprint != again.keys.fingerprint
    assert_same(model, again, 2 * X)
    shared = path.with_name("keys")
    keys().save(shared)  # those of the beginning are shared, the next stand in the model's own file
    model.save(path, keys=shared)
    assert_same(model, BottleneckClassifier.load(path), 2 * X)


@pytest.mark.parametrize("name", BOTTLENECKS)
@pytest.mark.parametrize("candidate_keys", ["all", "used"])
def test_frozen_copies_stay_frozen(name, candidate_keys, path):
    X, y = rows()
    model = bottleneck(name, candidate_keys=candidate_keys).fit(X, y)
    frozen = model.freeze()
    again = reload(frozen, path)
    assert_same(frozen, again, X)
    assert np.array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="got an inference-only copy"):
        again.partial_fit(X, y)


@pytest.mark.parametrize("name", BOTTLENECKS)
def test_many_classifiers_share_one_file_of_keys(name, tmp_path):
    X, y = rows()
    first, second = bottleneck(name).fit(X, y), bottleneck(name).fit(*rows(5))
    (tmp_path / "heads").mkdir()
    places = tmp_path / "heads" / "first", tmp_path / "second"
    shared = tmp_path / "keys.safetensors"
    for model, place in zip((first, second), places, strict=True):
        model.save(place, keys=shared)
    stamp = shared.stat().st_mtime_ns
    second.save(places[1], keys=shared)
    assert shared.stat().st_mtime_ns == stamp  # written once
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (shared, *places):
        target = moved / file.relative_to(tmp_path)
        target.parent.mkdir(exist_ok=True)
        file.rename(target)
    for model, place in zip((first, second), places, strict=True):
        assert_same(model, BottleneckClassifier.load(moved / place.relative_to(tmp_path)), X)
    first.save(tmp_path / "whole")
    assert (tmp_path / "whole").stat().st_size > (moved / "second").stat().st_size
    (moved / "keys.safetensors").unlink()
    with pytest.raises(FileError, match="its keys cannot be read from") as caught:
        BottleneckClassifier.load(moved / "second")
    assert caught.value.reason == "missing"
    other = fit_keys(X, preset="paper", n_codebooks=2, n_pairs=4, key_dim=2)
    other.save(shared)
    with pytest.raises(ValueError, match="keys: expected a file with the keys"):
        first.save(tmp_path / "model", keys=shared)
    assert not (tmp_path / "model").exists()
    other.save(moved / "keys.safetensors")
    with pytest.raises(FileError, match="keys: expected those named"):
        BottleneckClassifier.load(moved / "second")


@pytest.mark.parametrize("conditioning", ["centre", "whitened"])
@pytest.mark.parametrize("projection", ["gaussian", "partition", "identity"])
def test_keys(path, conditioning, projection):
    X, _ = rows()
    n = {"partition": 3}.get(projection, 4)
    made = fit_keys(
        X, n_codebooks=n, n_pairs=8, key_dim=2 if projection == "gaussian" else None,
        projection=projection, conditioning=conditioning,
    )  # fmt: skip
    made.save(path)
    again = Keys.load(path)
    assert again.fingerprint == made.fingerprint
    assert (again.report, again.settings) == (made.report, made.settings)
    assert torch.equal(again.codes(X, top=3), made.codes(X, top=3))
    assert torch.equal(again.novelty, made.novelty)
    again.save(path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()
    with pytest.raises(FileError, match="expected a file of estimator; got keys"):
        BottleneckClassifier.load(path)


@pytest.mark.parametrize("decoder", ["mean", "linear", "mlp"])
@pytest.mark.parametrize("gradient", ["values", "gumbel"])
def test_bottleneck_module(path, decoder, gradient):
    X = torch.from_numpy(rows()[0])
    model = KeyValueBottleneck(
        keys(), n_outputs=5, value_dim=5, decoder=decoder, gradient=gradient, temperature=0.5
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(module, optimizer):
        loss = nn.functional.cross_entropy(module(X), torch.arange(len(X)) % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step(model, optimizer)
    again = reload(model, path)
    assert again.training
    for one, steps in ((model, optimizer), (again, torch.optim.SGD(again.parameters(), lr=0.1))):
        step(one, steps)
        one.eval()
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(model(X), again(X))
    assert not reload(model, path).training


def test_a_decoder_of_another_kind_of_numbers_than_the_values_is_refused(path):
    state = bottleneck_state(KeyValueBottleneck(keys(), n_outputs=5, decoder="linear"))
    state.arrays["decoder.1.weight"] = state.arrays["decoder.1.weight"].astype(np.float64)
    files.write(path, "bottleneck", state)
    with pytest.raises(FileError, match="weight': expected float32"):
        KeyValueBottleneck.load(path)


def test_a_decoder_of_ones_own_must_be_given_again(path):
    own = nn.Sequential(nn.Flatten(), nn.Linear(8 * 5, 3), nn.Tanh())
    model = KeyValueBottleneck(
        keys(), n_outputs=3, value_dim=5, decoder=own, value_start="normal", train_decoder=False
    ).eval()
    X = torch.from_numpy(rows()[0])
    model.save(path)
    with pytest.raises(ValueError, match="decoder: expected a module like the one"):
        KeyValueBottleneck.load(path)
    fresh = nn.Sequential(nn.Flatten(), nn.Linear(8 * 5, 3), nn.Tanh())
    again = KeyValueBottleneck.load(path, decoder=fresh)
    assert torch.equal(again(X), model(X))
    assert [name for name, p in again.named_parameters() if p.requires_grad] == ["values"]
    with pytest.raises(FileError, match="damaged"):
        KeyValueBottleneck.load(path, decoder=nn.Linear(2, 2))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_rounded_values_cost_little_and_go_on_learning(path, dtype):
    X, y = rows()
    model = bottleneck().fit(X, y)
    shared = path.with_name("keys")
    model.save(path.with_name("exact"), keys=shared)
    model.save(path, keys=shared, dtype=dtype)
    again = BottleneckClassifier.load(path)
    exact, rounded = (m.state_arrays()["values"] for m in (model, again))
    assert rounded.dtype == np.float32
    limit = np.abs(exact).max() * (2**-10 if dtype == "float16" else 0.5 / 127 * 1.001)
    assert 0 < np.abs(exact - rounded).max() < limit
    assert (again.predict(X) == model.predict(X)).mean() > 0.95
    assert path.stat().st_size < path.with_name("exact").stat().st_size
    again.partial_fit(X, y)
    with pytest.raises(ValueError, match="dtype: expected one of 'float16', 'int8'"):
        model.save(path, dtype="float8")
    assert_same(again, again, X)


LABELS = {
    "strings": np.array(["ä", "b c", "", "🦊"]),
    "integers": np.array([3, -1, 2**40, 0]),
    "small integers": np.array([3, -1, 7, 0], dtype=np.int8),
    "floats": np.array([3.0, -1.0, 2.0, 0.0], dtype=np.float32),
    "booleans": np.array([True, False, True, False]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(path, kind):
    X, y = rows()
    y = LABELS[kind][np.searchsorted(np.sort(NAMED), y)]
    for model in (bottleneck(), LinearClassifier()):
        model.partial_fit(X, y, classes=LABELS[kind])
        again = reload(model, path)
        assert again.classes_.dtype == model.classes_.dtype
        assert np.array_equal(again.classes_, model.classes_)
        assert_same(model.partial_fit(X[:3], y[:3]), again.partial_fit(X[:3], y[:3]), X)


def test_random_generators_and_feature_names(path):
    X, y = rows()
    model = LinearClassifier(random_state=np.random.RandomState(3))
    model.fit(X, y)
    again = reload(model, path)
    for one in (model, again):
        one.fit(X, y)
    assert np.array_equal(model.decision_function(X), again.decision_function(X))
    assert model.random_state.randint(1000) == again.random_state.randint(1000)
    model.feature_names_in_ = np.array([f"f{i}" for i in range(X.shape[1])], dtype=object)
    assert reload(model, path).feature_names_in_.tolist() == model.feature_names_in_.tolist()


def test_clones_and_pickles_of_a_loaded_model(path):
    X, y = rows()
    model = reload(bottleneck().fit(X, y), path)
    assert_same(model, pickle.loads(pickle.dumps(model)), X)
    assert clone(model).keys is model.keys


def test_another_class_is_named(path):
    X, y = rows()
    LinearClassifier().fit(X, y).save(path)
    with pytest.raises(FileError, match="expected a BottleneckClassifier; got a LinearClassifier"):
        BottleneckClassifier.load(path)

    class Mine(LinearClassifier):
        pass

    with pytest.raises(TypeError, match="expected an estimator of dkvb"):
        Mine().fit(X, y).save(path)


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    X, y = rows()
    model = bottleneck().fit(X, y)
    model.save(path)
    before = path.read_bytes()
    model.partial_fit(X, y)
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["model"]


def test_answers_are_compared():
    X, y = rows()
    assert len(answers(bottleneck().fit(X, y), X)) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", BOTTLENECKS)
def test_models_move_between_devices(path, name):
    X, y = rows()
    model = bottleneck(name, device="cuda").fit(X, y)
    model.save(path)
    for device in ("cpu", "cuda"):
        again = BottleneckClassifier.load(path, device=device)
        assert again.keys_.device.type == again.device == device
        ours, theirs = model.state_arrays(), again.state_arrays()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
        assert (again.predict(X) == model.predict(X)).mean() > 0.95
        again.partial_fit(X, y)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_saved_can_be_loaded_whatever_was_set_after_fitting(tmp_path, name):
    X, y = rows()
    model, path, refused = make(name).fit(X, y), tmp_path / "file", 0
    for parameter, value in model.get_params(deep=False).items():
        for odd in (-1, 7, 0.5, float("nan"), "x", "sgd", 10**30, {}):
            try:
                model.set_params(**{parameter: odd})
            except ValueError:
                continue
            try:
                model.save(path)
            except (ValueError, TypeError):
                refused += 1
            else:
                dkvb.load(path)
        model.set_params(**{parameter: value})
    assert refused or not model.get_params()
    model.save(path)
    assert_same(dkvb.load(path), model, X)


@pytest.mark.parametrize("odd", [-1, [], "x"])
def test_parameters_that_cannot_be_used_are_neither_saved_nor_loaded(tmp_path, odd):
    X, y = rows()
    model, path = bottleneck().fit(X, y), tmp_path / "file"
    model.save(path)
    whole = files.read(path)
    whole.state.facts["params"]["epochs"] = odd
    files.write(path, whole.kind, whole.state)
    with pytest.raises(FileError):
        dkvb.load(path)
    model.set_params(epochs=odd)
    with pytest.raises((ValueError, TypeError), match="epochs"):
        model.save(path)
