"""Files of every format so far are read, and mean what they meant when they were written."""

import json
import shutil

import numpy as np
import pytest
import torch

from dkvb import Keys, KeyValueBottleneck
from dkvb._support import files
from dkvb.estimators.registry import load_classifier
from dkvb.store import open_folder, read_folder

from .make_golden import GOLDEN, answers, models

VERSIONS = sorted(folder.name for folder in GOLDEN.iterdir())
every_version = pytest.mark.parametrize("version", VERSIONS)


def expected_of(version):
    expected = json.loads((GOLDEN / version / "expected.json").read_text())
    return np.array(expected["X"], dtype=np.float32), expected


def test_every_format_has_files():
    assert [f"v{number}" for number in range(1, files.VERSION + 1)] == VERSIONS


@every_version
@pytest.mark.parametrize("name", list(models()))
def test_estimators(version, name):
    X, expected = expected_of(version)
    model = load_classifier(GOLDEN / version / f"{name}.safetensors")
    assert np.allclose(answers(model, X), expected[name], rtol=1e-4, atol=1e-5)
    if name not in ("pruned", "regressor"):
        model.partial_fit(X[:3], model.predict(X[:3]))


@every_version
def test_keys_and_modules(version):
    X, expected = expected_of(version)
    folder = GOLDEN / version
    keys = Keys.load(folder / "keys.safetensors")
    assert keys.codes(X).tolist() == expected["keys"]
    module = KeyValueBottleneck.load(folder / "module.safetensors")
    found = module(torch.from_numpy(X)).detach().numpy()
    assert np.allclose(found, expected["module"], rtol=1e-4, atol=1e-5)


@every_version
def test_folders(version, tmp_path):
    X, expected = expected_of(version)
    shutil.copytree(GOLDEN / version / "folder", tmp_path / "model")
    found = read_folder(tmp_path / "model")
    assert np.allclose(answers(found.classifier, X), expected["folder"])
    assert [(e.operation, e.count) for e in found.history] == [("fit", 36), ("learn", 4)]
    assert (found.encoder, found.pending) == ("an encoder", 1)
    assert found.encoder_fingerprint == (None if version == "v1" else "its fingerprint")
    with open_folder(tmp_path / "model") as model:
        assert model.forget("dog") == 4
