"""A plain install works, and a command that needs an extra names it before any work."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {
    "numpy", "scipy", "scikit-learn", "numba", "safetensors", "filelock", "tqdm",
    "typer", "rich",
}  # fmt: skip
# First versions without known vulnerabilities.
FLOORS = {
    "filelock": (3, 20, 3), "pillow": (12, 3), "tqdm": (4, 66, 3),
    "sentence-transformers": (6,), "onnx": (1, 21), "torch": (2, 6),
}  # fmt: skip


def name_of(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def test_the_core_installs_these_and_no_more():
    assert {name_of(one) for one in PROJECT["dependencies"]} == CORE


def test_no_version_with_a_known_vulnerability_is_allowed():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = {}
    for requirement in (one for group in groups for one in group):
        if name_of(requirement) in FLOORS:
            floor = re.search(r">=([\d.]+)", requirement)[1]
            found[name_of(requirement)] = tuple(map(int, floor.split(".")))
            assert found[name_of(requirement)] >= FLOORS[name_of(requirement)], requirement
    assert found.keys() == FLOORS.keys()


def test_every_extra_that_a_message_names_exists():
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'\brequire\(\s*(?:f?"[^"]+"|package),\s*"([\w-]+)"', source))
    named |= set(re.findall(r"dkvb\[([\w-]+)\]", source))
    assert {"plots", "export", "images", "torchvision"} <= named
    named -= {"cifar100", "extra"}  # a data set that an experiment requires, and a comment
    assert named <= PROJECT["optional-dependencies"].keys()


PROLOGUE = """
import sys
EXTRAS = {"matplotlib", "PIL", "onnx", "onnxruntime", "onnxscript", "torchvision", "timm",
          "open_clip", "sentence_transformers", "datasets", "efficientnet_lite_pytorch", "torch"}
EXTRAS -= set(sys.argv[2:])

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
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


def dkvb(*commands, installed=()):
    """[exit code, output] of each command where only the core and these packages are installed."""
    texts = json.dumps([[str(argument) for argument in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + COMMANDS, texts, *installed],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee"], 30)
    np.savez(path, x=rng.normal(size=(60, 8)).astype(np.float32) + (y == "bee")[:, None], y=y)
    return path


def test_models_learn_and_predict_without_any_extra(tmp_path, data):
    model = tmp_path / "model"
    found = dkvb(
        ("fit", model, "--data", data),
        ("learn", model, "--data", data),
        ("predict", model, "--data", data, "--json"),
        ("inspect", model),
        ("export", model, tmp_path / "one.safetensors"),
        ("evaluate", "--train", data, "--test", data, "--classifier", "prototypes",
         "--classes-per-task", "1", "--out", tmp_path / "runs"),
    )  # fmt: skip
    assert [code for code, _ in found] == [0] * len(found), found
    assert 'pip install "dkvb[plots]"' in " ".join(found[-1][1].split())


def test_the_library_works_without_any_extra(data):
    program = """
import numpy as np
from dkvb import KernelClassifier
file = np.load(sys.argv[1])
clf = KernelClassifier().fit(file["x"], file["y"])
assert clf.predict(file["x"]).shape == (60,)
assert not EXTRAS & set(sys.modules)
"""
    command = [sys.executable, "-c", PROLOGUE + program, str(data)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_command_that_needs_an_extra_names_it_before_any_work(tmp_path, data):
    model = tmp_path / "model"
    needs = {
        "export": ("export", model, tmp_path / "model.onnx"),
        "plots": ("demo", "--out", tmp_path / "demo"),
        "efficientnet-lite": ("embed", "--data", tmp_path, "--out", tmp_path / "x.npz"),
        "text": ("embed", "--encoder", "sentence-transformers:x", "--data", tmp_path),
        "onnx": ("embed", "--encoder", "onnx:x.onnx", "--data", tmp_path),
    }
    first, *found = dkvb(("fit", model, "--data", data), *needs.values(), installed=["torch"])
    assert first[0] == 0
    for extra, (code, output) in zip(needs, found, strict=True):
        assert code == 2, output
        assert f'pip install "dkvb[{extra}]"' in " ".join(output.split()), output
    assert not (tmp_path / "demo").exists()
