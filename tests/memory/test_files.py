"""Kernel classifiers in files and model folders."""

import numpy as np
import pytest

from dkvb import KernelClassifier, load
from dkvb._support import files
from dkvb._support.files import FileError, State
from dkvb.store import create, open_folder, read_folder

from .problems import blobs, same_state

X, Y = blobs()


def again(model, path):
    model.save(path)
    return load(path)


def test_all_that_a_model_knows_is_in_its_file(tmp_path):
    model = KernelClassifier(novelty_threshold=0.9)
    model.partial_fit(X[:50], Y[:50], classes=["ant", "bee", "cat", "zebra"], ids=np.arange(50))
    model.partial_fit(X[50:53], Y[50:53], ids=["a", "b", "c"]).forget_samples(ids=["b"])
    model.partial_fit(X[53:55], Y[53:55])
    loaded = again(model, tmp_path / "model.safetensors")
    assert same_state(model, loaded)
    assert loaded.audit_ == model.audit_
    assert loaded.class_count_ == model.class_count_
    assert loaded.setting_ == model.setting_
    assert loaded.loo_score_ == model.loo_score_
    assert [one.id for one in loaded.suspects()] == [one.id for one in model.suspects()]
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-9)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.novelty(X), model.novelty(X))


def test_a_model_that_is_not_solved_yet_keeps_its_setting(tmp_path, monkeypatch):
    model = KernelClassifier().fit(X[:50], Y[:50])
    monkeypatch.setattr("dkvb.memory.state.CHOSEN_AT_ONCE", 0)
    monkeypatch.setattr("dkvb.memory.state.FOLDED_AT_ONCE", 0)
    model.partial_fit(X[50:], Y[50:])
    loaded = again(model, tmp_path / "model.safetensors")
    assert not loaded._state.is_settled
    np.testing.assert_allclose(loaded.decision_function(X), model.decision_function(X), atol=1e-9)
    assert loaded.setting_ == model.setting_


def test_a_frozen_model_stays_frozen(tmp_path):
    loaded = again(KernelClassifier().fit(X, Y).freeze(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="inference-only"):
        loaded.partial_fit(X[:1], Y[:1])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("learned/memory/hashes", lambda a: a[::-1], "canonical order"),
        ("learned/memory/halves", lambda a: a * np.float16(np.inf), "examples: expected finite"),
        ("learned/memory/exponents", lambda a: a[1:], "exponents"),
        ("learned/memory/targets", lambda a: a + 9, "targets"),
        ("learned/solution/alpha", lambda a: a[1:], "alpha"),
        ("learned/solution/alpha", lambda a: a * np.nan, "alpha: expected finite"),
        ("learned/solution/centre", lambda a: a.astype(float), "centre"),
        ("learned/solution/point_of", lambda a: a + 1, "point_of"),
        ("learned/solution/targets", lambda a: a + 9, "targets"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, name, change, message):
    path = tmp_path / "model.safetensors"
    KernelClassifier().fit(X, Y).save(path)
    state = files.read(path, "estimator").state
    with np.errstate(divide="ignore", invalid="ignore"):
        state.arrays[name] = np.ascontiguousarray(change(state.arrays[name]))
    files.write(path, "estimator", State(state.arrays, state.facts))
    with pytest.raises(FileError, match=message):
        load(path)


def test_a_model_folder_learns_forgets_and_is_read_again(tmp_path):
    folder = tmp_path / "model"
    with create(folder, KernelClassifier().fit(X[:40], Y[:40])) as model:
        model.learn(X[40:50], Y[40:50])
        model.learn(X[50:], Y[50:])
    read = read_folder(folder)
    assert read.pending == 2
    assert same_state(read.classifier, KernelClassifier().fit(X, Y))
    with open_folder(folder) as model:
        model.forget("bee")
    kept = Y != "bee"
    never = KernelClassifier().fit(X[kept], Y[kept])
    found = read_folder(folder).classifier
    assert same_state(found, never)
    np.testing.assert_array_equal(found.predict(X), never.predict(X))
