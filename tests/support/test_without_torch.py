"""What works on embeddings works where torch is not installed; the rest says what it needs."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dkvb.estimators.registry import LinearClassifier

PROLOGUE = """
import sys

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
import numpy as np
"""
COMMANDS = """
import json
from typer.testing import CliRunner
from dkvb.cli import app
print(json.dumps([
    [result.exit_code, result.output]
    for result in (CliRunner().invoke(app, one) for one in json.loads(sys.argv[1]))
]))
"""
LEARNING = """
from dkvb.estimators.registry import load_classifier, make_classifier
file = np.load(sys.argv[1])
X, y = file["x"], file["y"]
for name in ("prototypes", "slda", "ranpac", "neighbours", "fly"):
    small = {"ranpac": {"n_features": 50}, "fly": {"n_cells": 400, "n_inputs": 3, "share": 0.3}}
    model = make_classifier(name, small.get(name, {})).partial_fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:])
    model.save(sys.argv[2])
    again = load_classifier(sys.argv[2])
    assert again.score(X, y) > 0.9, name
    assert (again.decision_function(X) == model.decision_function(X)).all(), name
    model.ask(X).records()
"""
MEMORY = """
import dkvb
file = np.load(sys.argv[1])
X, y = file["x"], file["y"]
for keep in ("examples", "sums"):
    model = dkvb.KernelClassifier(keep).fit(X[:20], y[:20])
    model.partial_fit(X[20:40], y[20:40]).merge(dkvb.KernelClassifier(keep).fit(X[40:], y[40:]))
    assert model.tune().score(X, y) == 1.0, keep
    model.save(sys.argv[2])
    again = dkvb.load(sys.argv[2])
    assert (again.decision_function(X) == model.decision_function(X)).all(), keep
    again.ask(X[:3]).records(), again.explain(X[0]), again.suggest(X, 2), again.freeze().predict(X)
    again.forget_samples(X[:5], y[:5]).relabel(X[5:7], y[5:7], ["cow", "cow"])
    assert again.forget("bee").classes_.tolist() == ["ant", "cow"], keep
"""
IMPORTS = """
import pkgutil
from importlib import import_module
for package in sys.argv[1:]:
    for one in pkgutil.walk_packages(import_module(package).__path__, package + "."):
        import_module(one.name)
"""
KERNELS = """
from dkvb._support.hashing import content_hash
from dkvb.estimators.suggest import suggest
from dkvb.kernels.centring.cpu import centred
from dkvb.kernels.distances import Panels
from dkvb.kernels.products import multiply
X = np.load(sys.argv[1])["x"].astype(np.float32)
assert len(set(content_hash(X).tolist())) == len(X)
z = centred(X, X.mean(axis=0), 1.0, False)
np.testing.assert_allclose(multiply(z, np.eye(8, dtype=np.float32)), z)
squared, lowest = Panels.of(z).squared_distances(z)
assert (squared.argmin(axis=1) == np.arange(len(X))).all()
assert Panels.of(z).rbf_sums(z, 0.1, np.eye(len(X)))[0].shape == (60, 60)
assert len(set(suggest(np.full((60, 2), 0.5), lowest, z, 5).tolist())) == 5
"""
MESSAGES = """
import json
import dkvb
import dkvb.embedding
from dkvb._support.optional import MissingPackageError
from dkvb.estimators.registry import make_classifier

def message(ask):
    try:
        ask()
    except MissingPackageError as error:
        return str(error)

print(json.dumps([message(ask) for ask in (
    lambda: dkvb.BottleneckClassifier,
    lambda: dkvb.fit_keys,
    lambda: make_classifier("mlp"),
    lambda: dkvb.KernelClassifier.with_key_rows(np.eye(4)),
    dkvb.embedding.load_encoder,
    lambda: dkvb.embedding.embed,
    lambda: dkvb.load(sys.argv[1]),
)]))
"""


def run(program, *arguments):
    """What a program prints where torch is not installed."""
    command = [sys.executable, "-c", PROLOGUE + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    y = np.repeat(["ant", "bee"], 30)
    noise = np.random.default_rng(0).normal(size=(60, 8))
    first = np.arange(8) < 4  # numbers are higher there for bees, and elsewhere for ants
    np.savez(path, x=noise + 9 * ((y == "bee")[:, None] == first), y=y)
    return path


def test_closed_form_baselines_learn_predict_and_are_saved(data, tmp_path):
    run(LEARNING, data, tmp_path / "model.safetensors")


def test_the_kernel_classifier_learns_unlearns_merges_and_is_saved(data, tmp_path):
    run(MEMORY, data, tmp_path / "model.safetensors")


def test_commands_the_service_and_model_folders_are_imported():
    pytest.importorskip("uvicorn")
    run(IMPORTS, "dkvb.cli", "dkvb.memory", "dkvb.serve", "dkvb.store")


def test_compiled_kernels_take_arrays(data):
    run(KERNELS, data)


def test_what_needs_torch_says_so_in_one_line(data, tmp_path):
    rows = np.load(data)
    LinearClassifier(epochs=1).fit(rows["x"], rows["y"]).save(tmp_path / "model.safetensors")
    needs = (
        "dkvb.BottleneckClassifier",
        "dkvb.fit_keys",
        "classifier 'mlp'",
        "keys fitted to rows",
    )
    needs += ("encoder efficientnet_lite0", "dkvb.embedding.embed", "classifier 'linear'")
    found = json.loads(run(MESSAGES, tmp_path / "model.safetensors"))
    for need, message in zip(needs, found, strict=True):
        assert message.startswith(f"{need}: expected the package torch; it is not installed; ")
        assert 'pip install "dkvb[torch]"' in message
        assert "https://download.pytorch.org/whl/cpu" in message
        assert "\n" not in message


def test_commands_work_on_embeddings(data, tmp_path):
    model, sums = tmp_path / "model", tmp_path / "sums"
    commands = (
        ("--help",),
        ("fit", "--help"),
        ("fit", model, "--data", data),
        ("learn", model, "--data", data),
        ("forget", model, "--label", "bee"),
        ("predict", model, "--data", data, "--json"),
        ("inspect", model),
        ("fit", sums, "--data", data, "--keep", "sums"),
        ("predict", sums, "--data", data),
        ("inspect", sums, "--json"),
        ("history", sums),
        ("evaluate", "--data", data, "--folds", "2", "--json"),
        ("evaluate", "--train", data, "--test", data, "--classifier", "prototypes",
         "--classes-per-task", "1", "--json", "--out", tmp_path / "runs"),
        ("evaluate", "--train", data, "--test", data, "--classifier", "linear",
         "--out", tmp_path / "others"),
        ("embed", "--data", tmp_path, "--out", tmp_path / "x.npz"),
    )  # fmt: skip
    texts = json.dumps([[str(argument) for argument in command] for command in commands])
    *good, linear, embed = json.loads(run(COMMANDS, texts).splitlines()[-1])
    assert [code for code, _ in good] == [0] * len(good), good
    for code, output in (linear, embed):
        assert code == 2, output
        assert 'pip install "dkvb[' in " ".join(output.split()), output
