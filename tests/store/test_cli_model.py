"""The commands that change and ask a model: what they print, write and refuse."""

import json
import os
import re

import numpy as np
import pytest
from typer.main import get_command

from dkvb import BottleneckClassifier
from dkvb.cli import app
from dkvb.store import open_folder, read_folder

from ..support.files.models import rows
from .commands import dkvb, good

BOTTLENECK = "bottleneck:n_codebooks=6,n_pairs=16,key_dim=3"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    (X, y), (X_test, y_test) = rows(0), rows(1)
    early = np.isin(y, ["ant", "bee"])
    np.savez("early.npz", x=X[early], y=y[early])
    np.savez("late.npz", x=X[~early], y=y[~early])
    np.savez("test.npz", x=X_test, y=y_test)
    np.savez("rows.npz", x=X_test)
    return tmp_path


def fit(classifier="kernel", *more, model="model"):
    return good("fit", model, "--data", "early.npz", "--classifier", classifier, *more)


def test_a_models_life(place):
    assert fit("kernel", "--keys", "rows.npz") == "learned 30 rows; model knows 2 classes\n"
    assert good("learn", "model", "--data", "late.npz").startswith("learned 30 rows; model knows 4")
    done = dkvb("predict", "model", "--data", "test.npz")
    header, *lines = done.stdout.splitlines()
    assert header == "item,label,probability,runner_up,runner_up_probability,novelty"
    assert [line.split(",")[0] for line in lines] == [str(i) for i in range(60)]
    assert "accuracy: 100.00 % of 60 rows" in done.stderr
    assert dkvb("predict", "model", "--data", "rows.npz").stderr == ""
    assert good("forget", "model", "--label", "bee") == "forgot 15 rows; model knows 3 classes\n"
    assert good("forget", "model", "--data", "late.npz") == "forgot 30 rows; model knows 1 class\n"
    entries = json.loads(good("history", "model", "--json"))
    assert [(e["operation"], e["count"]) for e in entries] == [
        ("fit", 30), ("learn", 30), ("forget", 15), ("forget_samples", 30),
    ]  # fmt: skip
    assert set(entries[0]) == {"operation", "count", "time", "id", "sequence"}
    assert "ant" not in good("history", "model")


def test_merge_of_two_sites(place):
    fit("kernel", "--keys", "rows.npz")
    fit("kernel", "--keys", "rows.npz", model="other")
    good("learn", "other", "--data", "late.npz")
    before = (place / "other" / "journal").read_bytes()
    assert good("merge", "model", "other").startswith("added 60 rows; model knows 4")
    assert (place / "other" / "journal").read_bytes() == before
    assert read_folder("model").classifier.class_count_ == {
        "ant": 30,
        "bee": 30,
        "cow": 15,
        "yak": 15,
    }


def test_json_and_quiet(place):
    told = json.loads(fit("kernel", "--json"))
    assert told == {"operation": "fit", "rows": 30, "classes": 2, "model": "model"}
    assert good("learn", "model", "--data", "late.npz", "--quiet") == ""
    answers = json.loads(good("predict", "model", "--data", "rows.npz", "--json"))
    assert len(answers) == 60
    assert set(answers[0]) == {
        "item", "label", "probability", "runner_up", "runner_up_probability", "novelty",
    }  # fmt: skip
    good("predict", "model", "--data", "rows.npz", "--out", "answers.npz")
    with np.load("answers.npz") as found:
        assert found["label"].tolist() == [answer["label"] for answer in answers]
        assert found["probability"].shape == (60, 4)
        assert found["classes"].tolist() == ["ant", "bee", "cow", "yak"]


def test_inspect(place):
    fit(BOTTLENECK, "--encoder", "eyes")
    good("learn", "model", "--data", "late.npz")
    facts = json.loads(good("inspect", "model", "--data", "test.npz", "--json"))
    assert facts["examples"] == {"ant": 15, "bee": 15, "cow": 15, "yak": 15}
    assert facts["encoder"] == "eyes"
    assert facts["in_journal"] == 0
    assert facts["bytes"] == sum(p.stat().st_size for p in (place / "model").iterdir())
    assert 0 < facts["keys"]["selected"] <= 1
    assert facts["novelty_of_data"]["0.5"] <= facts["novelty_of_data"]["0.99"]
    text = good("inspect", "model")
    assert re.search(r"6 codebooks of 16 pairs, fingerprint [0-9a-f]{8}\n", text)
    assert re.search(r"distance to keys +held-out rows: 50 % < [\d.]+, 90 % < ", text)
    said = good("fit", "baseline", "--data", "early.npz", "--classifier", "prototypes")
    assert said.startswith("learned 30 rows")
    assert json.loads(good("inspect", "baseline", "--json"))["classes"] == 2


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_export_of_rounded_values_prints_their_cost(place, dtype):
    fit(BOTTLENECK)
    told = good(
        "export", "model", "small.safetensors", "--dtype", dtype, "--freeze", "--data", "early.npz"
    )
    assert "% before rounding" in told
    assert "answers changed" in told
    good("export", "model", "exact.safetensors", "--freeze")
    assert (place / "small.safetensors").stat().st_size < (
        place / "exact.safetensors"
    ).stat().st_size
    answers = json.loads(good("predict", "small.safetensors", "--data", "early.npz", "--json"))
    assert {answer["label"] for answer in answers} == {"ant", "bee"}
    facts = json.loads(
        good("export", "model", "s.safetensors", "--dtype", dtype, "--data", "early.npz", "--json")
    )
    assert {"accuracy", "accuracy_rounded", "changed"} <= facts.keys()
    told = good("export", "model", "small.safetensors", "--dtype", dtype)
    assert "give --data" in told
    assert BottleneckClassifier.load("small.safetensors").predict(np.zeros((1, 6))).shape == (1,)


def test_labels_that_are_numbers(place):
    X, y = rows()
    np.savez("numbers.npz", x=X, y=np.unique(y, return_inverse=True)[1])
    good("fit", "model", "--data", "numbers.npz", "--classifier", "kernel")
    assert good("forget", "model", "--label", "2").startswith("forgot 15 rows")
    assert read_folder("model").classifier.classes_.tolist() == [0, 1, 3]


OTHER_WIDTH = "expected rows of width 6, as before; got width 9; give embeddings as before"
REFUSED = [
    (["learn", "nothing", "--data", "early.npz"], "make one with fit"),
    (["predict", "nothing", "--data", "early.npz"], "expected the folder of a model"),
    (["learn", "model", "--data", "nothing.npz"], "found no file"),
    (["learn", "model", "--data", "rows.npz"], "add y"),
    (["learn", "model", "--data", "wide.npz"], f"--data wide.npz: {OTHER_WIDTH}"),
    (["forget", "model", "--data", "wide.npz"], f"--data wide.npz: {OTHER_WIDTH}"),
    (["predict", "model", "--data", "wide.npz"], f"--data wide.npz: {OTHER_WIDTH}"),
    (["inspect", "model", "--data", "wide.npz"], f"--data wide.npz: {OTHER_WIDTH}"),
    (
        ["fit", "new", "--data", "early.npz", "--keys", "wide.npz"],
        f"--keys wide.npz: {OTHER_WIDTH}",
    ),
    (["learn", "model", "--data", "photos"], "--data: found nothing at photos"),
    (["learn", "model", "--data", "model"], "--encoder: expected the name of an encoder"),
    (["forget", "model"], "either --label or --data"),
    (["forget", "model", "--label", "dog"], "--label: expected one of ant, bee; got 'dog'"),
    (["forget", "model", "--data", "late.npz"], "expected labels learned before"),
    (["merge", "model", "early.npz"], "expected a file written by dkvb"),
    (["fit", "model", "--data", "early.npz"], "there is a model"),
    (["fit", "new", "--data", "early.npz", "--classifier", "oracle"], "expected one of"),
    (["export", "model", "model.pkl"], ".onnx or .safetensors"),
    (
        ["predict", "model", "--data", "rows.npz", "--out", "answers.txt"],
        "expected a name in .csv, .jsonl, .npz",
    ),
    (["predict", "model", "--data", "no.npz", "--out", "no/a.npz"], "there is no folder no;"),
    (["export", "model", "no/model.onnx"], "there is no folder no;"),
    (["inspect", "early.npz"], "expected a file written by dkvb"),
]


@pytest.fixture
def made(place):
    fit()
    np.savez("wide.npz", x=np.zeros((3, 9)), y=np.array(["ant"] * 3))
    return place


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=lambda value: " ".join(value)[:40])
def test_bad_input_ends_with_one_line_and_code_two(made, arguments, says):
    before = {p: p.read_bytes() for p in made.rglob("*") if p.is_file()}
    done = dkvb(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    own = {name for p in get_command(app).commands[arguments[0]].params for name in p.opts}
    elsewhere = re.sub(r"dkvb [a-z]+( --[a-z-]+)*", "", done.stderr)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", elsewhere)) <= own  # hints that exist
    assert {p: p.read_bytes() for p in made.rglob("*") if p.is_file()} == before


def test_a_busy_model_says_who_is_at_it(made):
    with open_folder("model"):
        done = dkvb("learn", "model", "--data", "late.npz")
        assert done.exit_code == 2
        assert f"process {os.getpid()} is changing this model" in done.stderr
        good("predict", "model", "--data", "rows.npz")
    good("learn", "model", "--data", "late.npz")


def test_overwrite(made):
    good("fit", "model", "--data", "late.npz", "--classifier", "prototypes", "--overwrite")
    assert read_folder("model").classifier.classes_.tolist() == ["cow", "yak"]
    assert not list((made / "model").glob("keys-*"))


def test_several_labels_are_forgotten_at_once(place):
    fit("kernel", "--keys", "rows.npz")
    good("learn", "model", "--data", "late.npz")
    assert dkvb("forget", "model", "--label", "ant", "--label", "no").exit_code == 2
    assert len(read_folder("model").classifier.classes_) == 4
    good("forget", "model", "--label", "ant", "--label", "bee")
    assert not {"ant", "bee"} & set(read_folder("model").classifier.classes_.tolist())


def test_what_makes_no_sense_is_refused(place):
    fit()
    for arguments, message in (
        (("merge", "model", "model"), "count every row twice"),
        (("predict", "model"), "expected either ITEM or --data"),
        (("export", "model", "head.onnx", "--with-encoder"), "--with-encoder: expected"),
        (("history", "early.npz"), "expected the folder of a model"),
    ):
        done = dkvb(*arguments)
        assert done.exit_code == 2, done.output
        assert message in " ".join(done.stderr.split())
    clf = read_folder("model").classifier
    with pytest.raises(ValueError, match="count twice"):
        clf.merge(clf)
