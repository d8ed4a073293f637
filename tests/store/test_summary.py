"""What `dkvb inspect` and `dkvb history` show is read without torch, and is never stale."""

import subprocess
import sys

import numpy as np
import pytest

from dkvb._support import files
from dkvb._support.files import FileError
from dkvb.store import create, open_folder, read_folder, read_summary, summarise

from ..support.files.models import rows
from .commands import dkvb, good
from .faults import reference

WATCHED = """
import sys
from dkvb.cli import app
for command in ("inspect", "history"):
    assert not app([command, "model"], standalone_mode=False)
print("heavy:", sorted({"torch", "sklearn", "scipy", "numba"} & sys.modules.keys()))
"""


def save(name, X, y):
    np.savez(name, x=X, y=y)
    return name


@pytest.mark.parametrize("classifier", ["kernel", "prototypes"])
def test_inspect_and_history_import_no_torch(tmp_path, monkeypatch, classifier):
    monkeypatch.chdir(tmp_path)
    X, y = rows()
    good("fit", "model", "--data", save("rows.npz", X, y), "--classifier", classifier)
    good("learn", "model", "--data", save("more.npz", X[:4] + 1, ["elk"] * 4))
    if classifier != "prototypes":
        good("forget", "model", "--label", "elk")
        good("learn", "model", "--data", "more.npz")
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stdout
    assert " 5\n" in done.stdout.replace("classes", "")  # of classes
    assert "learn" in done.stdout


@pytest.mark.parametrize("name", ["kernel", "bottleneck"])
def test_a_summary_is_what_the_model_itself_says(path, name):
    X, y = rows()
    with create(path, reference(name, (X, y)), encoder="eyes", with_summary=True) as model:
        steps = [lambda: None, lambda: model.learn(X[:3] + 1, ["elk"] * 3), model.compact]
        if name == "kernel":
            steps += [lambda: model.forget("bee"), lambda: model.relabel(X[:1], y[:1], ["bee"])]
        for step in steps:
            step()
            found, whole = read_summary(path), read_folder(path)
            assert found.facts == summarise(whole.classifier)
            assert (found.encoder, found.pending) == ("eyes", whole.pending)
            assert found.operations == len(whole.history)
    assert read_summary(path / "model.safetensors").facts == summarise(whole.classifier)


def test_a_change_without_a_summary_leaves_none_that_is_stale(path):
    X, y = rows()
    create(path, reference("kernel", (X, y)), with_summary=True).close()
    with open_folder(path) as model:
        model.learn(X[:3] + 1, ["elk"] * 3)
        assert read_summary(path) is None
        assert "elk" in good("inspect", path)
        model.compact()
    assert read_summary(path) is None
    with open_folder(path, with_summary=True) as model:
        model.forget("elk")
    assert "elk" not in read_summary(path).facts["examples"]


def test_a_forgotten_label_is_in_no_summary(path):
    X, y = rows()
    with create(path, reference("kernel", (X, y)), with_summary=True) as model:
        model.learn(X[:3] + 1, ["secret-word"] * 3)
        assert "secret-word" in read_summary(path).facts["examples"]
        model.forget("secret-word")
    assert all(b"secret-word" not in file.read_bytes() for file in path.iterdir())


def test_a_tensor_that_was_changed_is_told_though_only_headers_are_needed(path):
    X, y = rows()
    create(path, reference("bottleneck", (X, y)), with_summary=True).close()
    keys = next(path.glob("keys-*"))
    for file in (keys, path / "model.safetensors"):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        done = dkvb("inspect", path)
        assert done.exit_code == 2
        assert "was changed after it was written" in done.stderr
        file.write_bytes(whole)
    good("inspect", path)


@pytest.mark.parametrize(
    "odd",
    [
        [],
        {},
        {"classifier": "a"},
        {"settings": []},
        {"width": True},
        {"classes": "5"},
        {"examples": {"a": None}},
        {"accuracy": None},
        {"accuracy": {"kind": "a", "mean": "b", "per_class": {}}, "suspects": []},
        {"suspects": [{}]},
        {"keys": {}},
        {"more": 1},
    ],
)
def test_a_summary_that_was_changed_is_damage(path, odd):
    X, y = rows()
    create(path, reference("kernel", (X, y)), with_summary=True).close()
    snapshot = path / "model.safetensors"
    contents = files.read(snapshot)
    kept = contents.state.facts["folder/summary"]
    spoilt = kept | odd if isinstance(odd, dict) and odd else odd
    if odd == {"classifier": "a"}:
        del spoilt["settings"]
    contents.state.facts["folder/summary"] = spoilt
    files.write(snapshot, contents.kind, contents.state)
    with pytest.raises(FileError, match="summary: expected as written"):
        read_summary(path)


@pytest.mark.parametrize("classifier", ["kernel"])
def test_a_model_that_has_forgotten_everything_can_be_inspected_and_learns_again(
    tmp_path, monkeypatch, classifier
):
    monkeypatch.chdir(tmp_path)
    X, y = rows()
    good("fit", "model", "--data", save("rows.npz", X, y), "--classifier", classifier)
    labels = [part for label in sorted(set(y)) for part in ("--label", label)]
    assert "knows 0 classes" in good("forget", "model", *labels)
    good("inspect", "model")
    good("learn", "model", "--data", "rows.npz", "--test", "rows.npz")
    assert "yak" in good("inspect", "model")
