"""Data is read alike by every command: the same options, files, cache and messages."""

import json

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from dkvb import embedding
from dkvb.cli import app
from dkvb.embedding import Cache, load_dataset

from .test_cli import encoders  # noqa: F401
from .test_run import pixels_encoder

ALIKE = {"--encoder", "--weights", "--column", "--label-column", "--on-error", "--cache"}


def dkvb(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "name", ["embed", "fit", "learn", "forget", "predict", "inspect", "export"]
)
def test_commands_have_the_same_options_for_data(name):
    command = typer.main.get_command(app).commands[name]
    options = {option for param in command.params for option in param.opts}
    assert options >= ALIKE | {"--split"}


@pytest.fixture
def counted(monkeypatch):
    """An encoder of images that counts what it embeds."""
    embedded = []

    def load(name, **_):
        encoder = pixels_encoder()
        function = encoder.function

        def count(batch):
            embedded.extend(batch)
            return function(batch)

        encoder.function = count
        return encoder

    monkeypatch.setattr("dkvb.embedding.load_encoder", load)
    return embedded


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, brightness in (("dark", 0), ("light", 150)):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(8):
                pixels = rng.integers(0, 60, size=(9, 9, 3), dtype=np.uint8)
                Image.fromarray(pixels + np.uint8(brightness)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def test_fit_learn_and_predict_embed_a_folder_once(counted, photos, tmp_path):
    model = tmp_path / "model"
    data = ("--data", photos, "--split", "train", "--cache", tmp_path / "cache")
    assert dkvb("fit", model, *data, "--encoder", "means").exit_code == 0
    n = len(counted)
    assert n == 16
    for command in ("learn", "predict", "inspect"):
        result = dkvb(command, model, *data)
        assert result.exit_code == 0, result.output
    assert len(counted) == n
    again = ("--data", photos, "--split", "test", "--cache", tmp_path / "cache")
    assert dkvb("predict", model, *again).exit_code == 0
    assert len(counted) == n + 16


@pytest.mark.parametrize(
    ("command", "options"), [("learn", ()), ("forget", ()), ("relabel", ("--to", "light"))]
)
def test_the_encoder_runs_on_the_device_that_is_asked_for(
    counted, photos, tmp_path, monkeypatch, command, options
):
    model = tmp_path / "model"
    data = ("--data", photos, "--split", "train")
    assert dkvb("fit", model, *data, "--encoder", "means").exit_code == 0
    asked, load = [], embedding.load_encoder

    def watched(name, **settings):
        asked.append(settings["device"])
        return load(name, **settings)

    monkeypatch.setattr("dkvb.embedding.load_encoder", watched)
    monkeypatch.setattr("dkvb.cli.model.available", str)  # as if there were a GPU
    result = dkvb(command, model, *data, *options, "--device", "cuda")
    assert result.exit_code == 0, result.output
    assert asked == ["cuda"]


def test_what_is_forgotten_is_not_kept_in_the_cache_by_forgetting(counted, photos, tmp_path):
    model, cache = tmp_path / "model", tmp_path / "cache"
    data = ("--data", photos, "--split", "train", "--cache", cache)
    assert dkvb("fit", model, *data, "--encoder", "means").exit_code == 0
    assert dkvb("cache", "rm", "--all", "--cache", cache).exit_code == 0
    result = dkvb("forget", model, *data)
    assert result.exit_code == 0, result.output
    assert list(Cache(cache).entries()) == []


def test_the_split_is_chosen_in_every_command(counted, photos, tmp_path):
    model = tmp_path / "model"
    done = dkvb("fit", model, "--data", photos, "--encoder", "means", "--split", "val")
    assert done.exit_code == 2
    assert "expected a folder val" in done.stderr
    done = dkvb("fit", model, "--data", photos, "--encoder", "means", "--split", "train")
    assert done.exit_code == 0
    found = dkvb("predict", model, "--data", photos, "--split", "test", "--json")
    assert found.exit_code == 0, found.output
    assert len(json.loads(found.stdout)) == 16


@pytest.mark.parametrize("command", ["learn", "predict"])
def test_unreadable_images_are_an_error_or_left_out(counted, photos, tmp_path, command):
    model = tmp_path / "model"
    train = ("--data", photos / "train", "--cache", tmp_path / "cache")
    assert dkvb("fit", model, *train, "--encoder", "means").exit_code == 0
    (photos / "train" / "dark" / "0.png").write_bytes(b"no image")
    failed = dkvb(command, model, *train)
    assert failed.exit_code == 2
    assert "dark/0.png" in failed.stderr
    assert "--on-error skip" in " ".join(failed.stderr.split())
    done = dkvb(command, model, *train, "--on-error", "skip")
    assert done.exit_code == 0, done.output
    assert "dark/0.png" in done.stderr


def test_files_of_dkvb_embed_carry_the_names_of_items(counted, photos, tmp_path):
    out = tmp_path / "rows.npz"
    done = dkvb("embed", "--data", photos, "--encoder", "means", "--split", "test", "--out", out,
                "--cache", tmp_path / "cache")  # fmt: skip
    assert done.exit_code == 0, done.output
    with np.load(out) as file:
        assert file["names"][0] == "dark/0.png"
        assert file["names"].shape == (16,)
    model = tmp_path / "model"
    assert dkvb("fit", model, "--data", out).exit_code == 0
    found = dkvb("predict", model, "--data", out, "--json")
    assert "dark/0.png" in found.stdout


def test_columns_are_named_in_every_command(encoders, tmp_path):  # noqa: F811
    table, model = tmp_path / "t.csv", tmp_path / "model"
    table.write_text("utterance;group\n" + "hello there;a\nbye now;b\n" * 4)
    data = ("--data", table, "--cache", tmp_path / "cache")
    done = dkvb("fit", model, *data, "--encoder", "tiny")
    assert done.exit_code == 2
    assert "got columns utterance, group; name it with --column" in " ".join(done.stderr.split())
    named = (*data, "--column", "utterance", "--label-column", "group")
    for command in (("fit", model, *named, "--encoder", "tiny"), ("learn", model, *named),
                    ("predict", model, *named)):  # fmt: skip
        done = dkvb(*command)
        assert done.exit_code == 0, done.output
    assert "hello there" in done.stdout


def rows():
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee"], 12)
    return (rng.normal(size=(24, 5)) + 4 * (y == "bee")[:, None]).astype(np.float32), y


def write(folder, suffix, labelled):
    x, y = rows()
    path = folder / f"rows{suffix}"
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".pt":
        torch.save((torch.from_numpy(x), y.tolist()) if labelled else torch.from_numpy(x), path)
    else:
        mark = "," if suffix == ".csv" else "\t"
        head = [*(f"f{i}" for i in range(5)), *(["label"] if labelled else [])]
        lines = [
            mark.join([*(f"{v:.9g}" for v in row), *([label] if labelled else [])])
            for row, label in zip(x, y, strict=True)
        ]
        path.write_text("\n".join([mark.join(head), *lines]) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".pt", ".csv", ".tsv"])
def test_labelled_embeddings_in_other_files_are_learned(tmp_path, suffix):
    x, y = rows()
    path, model = write(tmp_path, suffix, True), tmp_path / "model"
    done = dkvb("fit", model, "--data", path)
    assert done.exit_code == 0, done.output
    assert "learned 24 rows" in done.stdout
    np.savez(tmp_path / "same.npz", x=x, y=y)
    found = [
        dkvb("predict", model, "--data", data, "--json").stdout
        for data in (path, tmp_path / "same.npz")
    ]
    assert json.loads(found[0]) == json.loads(found[1])


@pytest.mark.parametrize("suffix", [".npy", ".pt", ".csv"])
def test_embeddings_without_labels_are_asked_and_not_learned(tmp_path, suffix):
    path, model = write(tmp_path, suffix, False), tmp_path / "model"
    done = dkvb("fit", model, "--data", path)
    assert done.exit_code == 2
    assert "expected embeddings with labels" in " ".join(done.stderr.split())
    assert dkvb("fit", model, "--data", write(tmp_path, ".tsv", True)).exit_code == 0
    found = dkvb("predict", model, "--data", path, "--json")
    assert found.exit_code == 0, found.output
    assert len(json.loads(found.stdout)) == 24


def test_a_wrong_width_in_other_files_is_refused(tmp_path):
    model = tmp_path / "model"
    assert dkvb("fit", model, "--data", write(tmp_path, ".tsv", True)).exit_code == 0
    np.save(tmp_path / "wide.npy", np.zeros((3, 6)))
    done = dkvb("predict", model, "--data", tmp_path / "wide.npy")
    assert done.exit_code == 2
    assert "expected rows of width 5" in " ".join(done.stderr.split())


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_in_other_dialects(tmp_path, mark, encoding):
    path = tmp_path / "t.csv"
    path.write_text(f'text{mark}label\n"a{mark} b"{mark}x\nüber{mark}y\n', encoding=encoding)
    found = load_dataset(path, kind="text")
    assert [found.item(i) for i in range(2)] == [f"a{mark} b", "über"]
    assert found.labels.tolist() == ["x", "y"]


def test_a_table_in_another_encoding_says_what_to_do(tmp_path):
    (tmp_path / "t.csv").write_bytes("text,label\nüber,x\n".encode("latin-1"))
    with pytest.raises(ValueError, match="byte 11 is none; save it as UTF-8"):
        load_dataset(tmp_path / "t.csv", kind="text")


def test_a_table_with_a_column_twice_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("text,text\na,b\n")
    with pytest.raises(ValueError, match="'text' is there twice"):
        load_dataset(tmp_path / "t.csv", kind="text")


def test_a_first_line_without_end_is_refused_in_one_line(tmp_path):
    (tmp_path / "t.csv").write_text("a" * 200_000 + "\nb\n")
    with pytest.raises(ValueError, match="field larger than field limit"):
        load_dataset(tmp_path / "t.csv", kind="text")


def test_labels_with_leading_zeros_are_texts(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na,007\nb,7\n")
    assert load_dataset(tmp_path / "t.csv", kind="text").labels.tolist() == ["007", "7"]
    (tmp_path / "t.csv").write_text(f"text,label\na,{10**30}\nb,7\n")
    assert load_dataset(tmp_path / "t.csv", kind="text").labels.tolist() == [str(10**30), "7"]
