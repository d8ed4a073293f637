"""A model knows the weights that its embeddings came from, and refuses those of others."""

import json
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.main import get_command

from dkvb.cli import app
from dkvb.cli._once import Once
from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.store import read_folder

from .commands import dkvb, good

SETTINGS = "kernel"


def encoder(name, seed=0):
    """Random filters of some seed: the same network with other weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
    return ModuleEncoder(name, network, network, ImageTransform(8), identity={"name": name})


def content(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and "cache" not in p.parts}


def refused(folder, *arguments):
    """What the command says, which must leave every file as it was."""
    before = content(folder)
    done = dkvb(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert content(folder) == before
    return done.stderr


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Photos; what eyes gave of them, by two weights; and a file that says nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    rng = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 60, size=(8, 8, 3), dtype=np.uint8)
            pixels[:, :, channel] += 150
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    for seed, file in ((1, "other.npz"), (0, "rows.npz")):
        give(monkeypatch, seed)
        good(
            "embed", "--encoder", "eyes", "--data", "photos", "--out", file,
            "--cache", "cache", "--quiet",
        )  # fmt: skip
    with np.load("rows.npz", allow_pickle=False) as found:
        assert str(found["encoder"]) == "eyes"
        assert len(str(found["encoder_fingerprint"])) == 64
        np.savez("plain.npz", x=found["x"], y=found["y"])
    return tmp_path


def give(monkeypatch, seed):
    """From now on the name `eyes` means these weights."""
    monkeypatch.setattr("dkvb.embedding.load_encoder", lambda name, **_: encoder(name, seed))


def fit(*more, data="rows.npz", model="model"):
    return good("fit", model, "--data", data, "--classifier", SETTINGS, *more)


def fingerprint(file):
    with np.load(file, allow_pickle=False) as found:
        return str(found["encoder_fingerprint"])


@pytest.mark.parametrize("data", ["rows.npz", "photos"])
def test_rows_by_other_weights_of_the_same_name_are_refused(place, monkeypatch, data):
    fit(*(() if data == "rows.npz" else ("--encoder", "eyes")), data=data)
    assert read_folder("model").encoder == "eyes"
    assert read_folder("model").encoder_fingerprint == fingerprint("rows.npz")
    commands = (
        ("learn", "model"),
        ("predict", "model"),
        ("forget", "model"),
        ("inspect", "model"),
    )
    for command in commands:
        said = refused(place, *command, "--data", "other.npz")
        assert said.startswith("error: --data other.npz: expected embeddings by eyes")
        assert fingerprint("rows.npz")[:8] in said
        assert fingerprint("other.npz")[:8] in said
        assert "embed with the weights" in said
    give(monkeypatch, 1)  # as when a library brings new weights
    for command in commands:
        assert fingerprint("other.npz")[:8] in refused(place, *command, "--data", "photos")
    assert "--with-encoder: " in refused(place, "export", "model", "m.onnx", "--with-encoder")
    give(monkeypatch, 0)
    good("learn", "model", "--data", "photos")
    good("learn", "model", "--data", "rows.npz")
    good("forget", "model", "--label", "red")  # a new snapshot
    assert read_folder("model").encoder_fingerprint == fingerprint("rows.npz")


def test_models_and_keys_of_other_weights_are_refused(place):
    fit()
    fit(data="other.npz", model="stranger")
    assert "OTHER stranger: expected embeddings" in refused(place, "merge", "model", "stranger")
    said = refused(place, "fit", "new", "--data", "rows.npz", "--keys", "other.npz")
    assert "--keys other.npz: expected embeddings by eyes" in said
    fit("--keys", "photos", model="new")  # by the encoder that the rows name


def test_what_says_nothing_of_its_encoder_is_taken_as_it_is(place):
    fit()
    commands = (("learn", "model"), ("predict", "model"), ("inspect", "model"), ("forget", "model"))
    for command in commands:
        done = dkvb(*command, "--data", "plain.npz")
        assert done.exit_code == 0
        (said,) = (line for line in done.stderr.splitlines() if "encoder" in line)
        assert said.startswith("--data plain.npz names no encoder: taken for embeddings by eyes")
        assert "encoder" not in dkvb(*command, "--data", "rows.npz").stderr
    for told in (["--quiet"], ["--encoder", "eyes"]):
        assert "encoder" not in dkvb("learn", "model", "--data", "plain.npz", *told).stderr
    assert "--keys plain.npz names no encoder" in dkvb(
        "fit", "keyed", "--data", "rows.npz", "--keys", "plain.npz", "--classifier", SETTINGS
    ).stderr  # fmt: skip
    fit("--encoder", "eyes", data="plain.npz", model="plain")
    assert good("learn", "plain", "--data", "other.npz").startswith("learned 18 rows")
    found = read_folder("plain")
    assert (found.encoder, found.encoder_fingerprint) == ("eyes", None)
    fit(data="plain.npz", model="silent")
    for file in ("plain.npz", "rows.npz"):  # nothing to compare with
        assert "encoder" not in dkvb("learn", "silent", "--data", file).stderr
    assert read_folder("silent").encoder is None
    assert "not known\n" in good("inspect", "silent")


def test_the_name_comes_from_the_file_and_none_may_contradict_it(place):
    fit("--encoder", "eyes")
    assert read_folder("model").encoder == "eyes"
    said = refused(place, "fit", "new", "--data", "rows.npz", "--encoder", "ears")
    assert "--encoder: expected eyes, which made the embeddings in rows.npz; got ears" in said
    facts = json.loads(good("inspect", "model", "--json"))
    assert facts["encoder_fingerprint"] == fingerprint("rows.npz")
    assert f"eyes, weights {fingerprint('rows.npz')[:8]}\n" in good("inspect", "model")


def test_files_of_encoders_are_found_from_other_folders(place, monkeypatch):
    fit("--encoder", "onnx:mine.onnx", data="plain.npz")
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert read_folder("../model").encoder == f"onnx:{place.resolve() / 'mine.onnx'}"
    good("predict", "../model", "--data", "../rows.npz")
    good("fit", "new", "--data", "../plain.npz", "--encoder", "onnx:../mine.onnx")
    assert read_folder("new").encoder == read_folder("../model").encoder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "new", "--data", "a", "--data", "b"], "--data: expected once; got it twice"),
        (["learn", "m", "--data=a", "--data", "b"], "--data: expected once; got it twice"),
        (["predict", "m", *["--data", "a"] * 3], "--data: expected once; got it 3 times"),
        (["evaluate", "--train", "a", "--train", "b"], "--train: expected once"),
        (["cache", "ls", "--cache", "a", "--cache", "b"], "--cache: expected once"),
        (["cache", "verify", "--cache", "a", "--cache", "b"], "--cache: expected once"),
        (["cache", "rm", "4a", "--cache", "a", "--cache", "b"], "--cache: expected once"),
    ],
)
def test_options_with_one_value_are_given_once(place, arguments, says):
    assert says in refused(place, *arguments)


def test_no_command_takes_the_last_of_two_values_without_a_word():
    def commands(group):
        for command in group.commands.values():
            yield from commands(command) if hasattr(command, "commands") else [command]

    found = list(commands(get_command(app)))
    assert len(found) > 10
    assert [command.name for command in found if not isinstance(command, Once)] == []


def test_an_encoder_of_another_width_is_refused_before_it_embeds(place, monkeypatch):
    np.savez("wide.npz", x=np.eye(18, 40), y=np.array(["red", "green", "blue"] * 6))
    fit("--encoder", "eyes", data="wide.npz", model="wide")  # which cannot know the fingerprint
    monkeypatch.setattr("dkvb.embedding.embed", None)
    said = refused(place, "learn", "wide", "--data", "photos")
    assert "--data photos: expected rows of width 40, as before; got width 32" in said


def test_flags_and_lists_may_be_given_often(place):
    fit("--quiet", "--quiet")
    assert good("forget", "model", "--label", "red", "--label", "blue").startswith("forgot 12")
