"""Models on a hub, for which a local folder stands, with a card."""

import numpy as np
import pytest

import dkvb
from dkvb import BottleneckClassifier, KernelClassifier, fit_keys
from dkvb.engines import hub
from dkvb.store import create, open_folder


def rows():
    rng = np.random.default_rng(0)
    y = np.array(["ant", "b|<b>ee", "cat"])[rng.integers(0, 3, 90)]
    return (rng.normal(size=(90, 6)) + 2 * (y == "cat")[:, None]).astype(np.float32), y


@pytest.fixture(params=["kernel", "bottleneck"])
def folder(request, tmp_path):
    X, y = rows()
    keys = fit_keys(X, n_codebooks=4, n_pairs=4, key_dim=2)
    made = KernelClassifier() if request.param == "kernel" else BottleneckClassifier(keys)
    create(
        tmp_path / "model", made.fit(X[:60], y[:60]), encoder="resnet50",
        encoder_fingerprint="0123456789abcdef0123",
    ).close()  # fmt: skip
    with open_folder(tmp_path / "model") as model:
        model.learn(X[60:], y[60:])  # stays in the journal
    return tmp_path / "model"


def test_a_round_trip_predicts_the_same(folder, tmp_path):
    X, y = rows()
    expected = dkvb.load(folder)
    assert hub.upload(folder, tmp_path / "hub") == str(tmp_path / "hub")
    names = {one.name for one in (tmp_path / "hub").iterdir()}
    assert all(name == "README.md" or name.endswith(".safetensors") for name in names)
    found = hub.load(tmp_path / "hub")
    assert (found.predict_proba(X) == expected.predict_proba(X)).all()
    hub.upload(found, tmp_path / "hub")  # again, from memory
    copied = hub.download(tmp_path / "hub", tmp_path / "copy")
    with open_folder(copied) as model:  # which can learn on
        assert model.learn(X[:5], y[:5]) == 5
    with pytest.raises(ValueError, match="expected a new folder"):
        hub.download(tmp_path / "hub", copied)


def test_a_card_says_what_was_learned_and_measured(folder):
    X, y = rows()
    card = hub.model_card(folder, test=(X, y))
    score = 100 * dkvb.load(folder).score(X, y)
    assert f"| accuracy | {score:.2f} %, measured on 90 held-out rows |" in card
    assert "| encoder | `resnet50` (fingerprint `0123456789abcdef`) |" in card
    assert "| classes | 3 |" in card
    assert f"| ant | {(y == 'ant').sum()} |" in card
    assert "b\\|&lt;b>ee" in card
    own = hub.model_card(folder)
    kernel = type(dkvb.load(folder)).__name__ == "KernelClassifier"
    assert ("measured by leave-one-out" in own) == kernel
    assert ("| accuracy | not measured |" in own) != kernel
    assert ("holds the embedding of every row" in own) == kernel
