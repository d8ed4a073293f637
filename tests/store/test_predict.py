"""`dkvb predict`: which item got which label, in every format, searched once."""

import csv
import io
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import dkvb as library
from dkvb import KernelClassifier
from dkvb._support.files import FileError
from dkvb.bottleneck.heads import Projection
from dkvb.cli import _answers, app
from dkvb.kernels.nearest import cpu, rescore
from dkvb.store import create, open_folder

from ..support.files.models import bottleneck, keys, rows
from .commands import dkvb, good
from .shared import learned
from .test_tutorial import small_encoder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    X, y = rows()
    np.savez("rows.npz", x=X, y=y)
    create("model", learned("kernel", (X, y))).close()
    return tmp_path


# ------------------------------------------------------------------------------------- one opening
@pytest.mark.parametrize("name", ["model", "model/model.safetensors"])
def test_no_way_to_open_a_model_misses_what_its_journal_holds(place, name):
    X, _ = rows()
    with open_folder("model") as model:
        model.learn(X[:5] + 5, ["elk"] * 5)
    assert "elk" in library.load(name).classes_
    answers = json.loads(good("predict", name, "--data", "rows.npz", "--json", "--top", "5"))
    assert "elk" in {one["label"] for one in answers[0]["top"]}
    good("export", name, "out.safetensors")
    assert "elk" in library.load("out.safetensors").classes_
    assert json.loads(good("inspect", name, "--json"))["classes"] == 5


def test_a_snapshot_under_another_name_is_refused_beside_its_journal(place):
    X, y = rows()
    with open_folder("model") as model:
        model.learn(X[:5], y[:5])
    (place / "model" / "old.safetensors").write_bytes(
        (place / "model" / "model.safetensors").read_bytes()
    )
    with pytest.raises(FileError, match="lacks what"):
        library.load("model/old.safetensors")
    with open_folder("model") as model:
        model.compact()
    assert len(library.load("model/old.safetensors").classes_) == 4  # an older state, by name


def test_load_takes_folders_and_files(place):
    X, y = rows()
    clf = learned("kernel", (X, y))
    clf.save("file")
    for name in ("model", "file", place / "model"):
        found = library.load(name)
        assert isinstance(found, KernelClassifier)
        assert np.array_equal(found.predict_proba(X), clf.predict_proba(X))
    keys().save("keys")
    with pytest.raises(FileError, match="expected a file of estimator; got keys"):
        library.load("keys")
    with pytest.raises(FileError, match="expected the folder of a model"):
        library.load("nothing")


# ----------------------------------------------------------------------------------------- formats
def test_every_format_says_the_same(place):
    answers = json.loads(good("predict", "model", "--data", "rows.npz", "--json"))
    told = list(csv.DictReader(io.StringIO(good("predict", "model", "--data", "rows.npz"))))
    for suffix in ("csv", "jsonl", "npz", "parquet"):
        assert good("predict", "model", "--data", "rows.npz", "--out", f"a.{suffix}") == ""
    assert pyarrow.parquet.read_table("a.parquet").to_pylist() == answers
    with open("a.csv") as file:  # noqa: PTH123
        assert list(csv.DictReader(file)) == told
    lines = (place / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == answers
    with np.load("a.npz", allow_pickle=False) as found:
        assert found["label"].tolist() == [answer["label"] for answer in answers]
        assert found["item"].tolist() == [answer["item"] for answer in answers]
        best = found["probability"].max(axis=1)
    for answer, line, p in zip(answers, told, best, strict=True):
        assert answer["probability"] == pytest.approx(p)
        assert line["label"] == answer["label"]
        assert answer["runner_up"] != answer["label"]
        assert answer["runner_up_probability"] <= answer["probability"]


def test_answers_are_written_as_they_come(place):
    """In parts: of the first, nothing is known but that it is unlike all that was learned."""
    X, y = rows()
    X = np.concatenate([X[:3] + 1000, X])
    clf = learned("bottleneck", (X[3:], y)).set_params(novelty_threshold=0.999)
    for suffix in ("csv", "jsonl", "npz", "parquet"):
        for name, size in (("parts", 3), ("whole", 1000)):
            answers = _answers.predict(clf, X, None, 2, rows=size)
            _answers.write(place / f"{name}.{suffix}", answers)
    found = pyarrow.parquet.read_table("parts.parquet")
    assert found.to_pylist() == pyarrow.parquet.read_table("whole.parquet").to_pylist()
    assert found["label"].to_pylist()[:3] == ["unknown"] * 3
    assert found["item"].to_pylist() == [str(i) for i in range(len(X))]
    for suffix in ("csv", "jsonl"):
        assert Path(f"parts.{suffix}").read_bytes() == Path(f"whole.{suffix}").read_bytes()
    with np.load("parts.npz") as parts, np.load("whole.npz") as whole:
        assert all(np.array_equal(parts[name], whole[name]) for name in whole.files)


def test_parquet_names_its_extra_before_any_work(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = dkvb("predict", "nothing", "--data", "no.npz", "--out", "a.parquet")
    assert done.exit_code == 2
    assert 'pip install "dkvb[arrow]"' in done.stderr


def test_top_names_so_many_classes(place):
    answers = json.loads(good("predict", "model", "--data", "rows.npz", "--json", "--top", "3"))
    for answer in answers:
        numbers = [one["probability"] for one in answer["top"]]
        assert len(numbers) == 3
        assert numbers == sorted(numbers, reverse=True)
        assert answer["top"][0]["label"] == answer["label"]
    header = good("predict", "model", "--data", "rows.npz", "--top", "9").splitlines()[0]
    assert header.endswith("label_4,probability_4")  # it knows four


def test_a_rejected_item_is_unknown_and_its_runner_up_is_the_likeliest_class(place):
    X, y = rows()
    clf = learned("kernel", (X, y))
    far = clf.ask(X)
    rejected = replace(far, labels=np.array(["unknown"] * len(X)))
    for before, after in zip(far.records(), rejected.records(), strict=True):
        assert (after["label"], after["probability"]) == ("unknown", None)
        assert after["runner_up"] == before["label"]


def test_a_table_fits_eighty_columns(place):
    X, y = rows()
    names = [f"a/very/long/folder/of/photos/from/last/summer/{i:04}.jpeg" for i in range(len(X))]
    (answers,) = _answers.predict(learned("kernel", (X, y)), X, names, None)
    console = Console(width=80, file=io.StringIO())
    console.print(_answers._table(answers.records()))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "runner-up" in lines[0]
    assert "novelty" in lines[0]
    assert "/0000.jpeg " in lines[2]
    assert f" {answers.records()[0]['label']} " in lines[2]


@pytest.mark.parametrize("top", [3, 9])
def test_a_table_of_several_labels_names_each_once_in_eighty_columns(place, top):
    X, y = rows()
    y = np.array([f"{label} of a rather long name" for label in y])
    names = [f"photos/from/last/summer/{i:04}.jpeg" for i in range(len(X))]
    (answers,) = _answers.predict(learned("kernel", (X, y)), X, names, top)
    console = Console(width=80, file=io.StringIO())
    console.print(_answers._table(answers.records()))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert text.split("\n")[0].split() == ["item", "labels", "novelty"]
    assert "/0000.jpeg" in text
    assert "…  " not in text
    first = answers.records()[0]
    assert f"{first['label']} {first['probability']:.3f}, " in text
    rejected = _answers._ranked(first | {"label": "unknown"})
    assert rejected["labels"].startswith(f"unknown: {first['label']} ")


def test_csv_has_six_digits(place):
    for line in csv.DictReader(io.StringIO(good("predict", "model", "--data", "rows.npz"))):
        for name in ("probability", "runner_up_probability", "novelty"):
            assert line[name] == f"{float(line[name]):.6g}"


def test_labels_that_the_model_does_not_know_are_reported_apart(place):
    X, y = rows()
    np.savez("more.npz", x=np.concatenate([X, X[:2]]), y=np.concatenate([y, ["elk", "fox"]]))
    said = dkvb("predict", "model", "--data", "more.npz").stderr
    assert "accuracy: 100.00 % of 60 rows" in said
    assert "2 rows of classes that the model does not know (elk, fox) are not counted" in said


@pytest.mark.parametrize("threshold", [None, 0.9])
def test_predict_finds_keys_and_distances_in_one_pass(place, monkeypatch, threshold):
    """Labels, probabilities and novelty of one file."""
    X, y = rows()
    clf = bottleneck(novelty_threshold=threshold).fit(X, y)
    create("model", clf, overwrite=True).close()
    calls, keys = Counter(), clf.keys_
    assert len(X) != keys.projection.width

    def count(home, name):
        real = getattr(home, name)

        def counted(*arguments, **named):
            of_basis = name == "__call__" and len(arguments[1]) == keys.projection.width
            calls[name] += not of_basis
            return real(*arguments, **named)

        monkeypatch.setattr(home, name, counted)

    count(cpu, "search")
    count(cpu, "search_rows")
    count(rescore, "distances")
    count(rescore, "search_with_distances")
    count(Projection, "__call__")
    good("predict", "model", "--data", "rows.npz", "--json")
    assert +calls == {"search_with_distances": 1}


# ------------------------------------------------------------------------------------------- items
@pytest.fixture
def photos(place, monkeypatch):
    monkeypatch.setattr("dkvb.embedding.load_encoder", small_encoder)
    rng = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green")):
        (place / "photos" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 60, size=(24, 24, 3), dtype=np.uint8)
            pixels[:, :, channel] += 150
            Image.fromarray(pixels).save(place / "photos" / name / f"{i}.png")
    spec = "kernel"
    good("fit", "eyes", "--data", "photos", "--encoder", "efficientnet_lite0", "--classifier", spec)
    return place


def test_single_images_folders_and_standard_input(photos):
    one = "photos/red/0.png"
    assert json.loads(good("predict", "eyes", "--data", one, "--json"))[0]["label"] == "red"
    answers = json.loads(good("predict", "eyes", one, "photos/green/1.png", "--json"))
    assert [(a["item"], a["label"]) for a in answers] == [
        (one, "red"), ("photos/green/1.png", "green"),
    ]  # fmt: skip
    told = list(csv.DictReader(io.StringIO(good("predict", "eyes", "photos"))))
    assert told[0]["item"] == "green/0.png"
    done = CliRunner().invoke(
        app, ["predict", "eyes", "-", "--json"], input=(photos / one).read_bytes()
    )
    assert [(a["item"], a["label"]) for a in json.loads(done.stdout)] == [("-", "red")]
    done = dkvb("predict", "eyes", "photos/blue.png")
    assert done.exit_code == 2
    assert "ITEM: expected files of images; found no file at photos/blue.png" in done.stderr


class Words:
    """An encoder of texts: how often each letter occurs."""

    takes, dimension, name, transform = "text", 26, "words", staticmethod(str)
    identity = {"name": "words"}  # noqa: RUF012
    device = torch.device("cpu")

    def encode(self, items):
        letters = "abcdefghijklmnopqrstuvwxyz"
        return torch.tensor([[float(text.lower().count(c)) for c in letters] for text in items])


def test_texts_as_arguments_and_from_standard_input(place, monkeypatch):
    monkeypatch.setattr("dkvb.embedding.load_encoder", lambda name, **_: Words())
    texts = [("buzz buzz", "bee"), ("moo moo", "cow")] * 10
    lines = ["text,label", *(f"{text}{'!' * i},{label}" for i, (text, label) in enumerate(texts))]
    (place / "texts.csv").write_text("\n".join(lines) + "\n")
    spec = "kernel"
    good("fit", "words", "--data", "texts.csv", "--encoder", "words", "--classifier", spec)
    answers = json.loads(good("predict", "words", "buzz", "moo moo moo", "--json"))
    assert [(a["item"], a["label"]) for a in answers] == [("buzz", "bee"), ("moo moo moo", "cow")]
    done = CliRunner().invoke(app, ["predict", "words", "-", "--json"], input="moo\n\nbuzz\n")
    assert [a["item"] for a in json.loads(done.stdout)] == ["moo", "buzz"]
    told = list(csv.DictReader(io.StringIO(good("predict", "words", "--data", "texts.csv"))))
    assert told[0]["item"] == "buzz buzz"
