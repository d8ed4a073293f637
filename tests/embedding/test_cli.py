"""`dkvb embed` and `dkvb cache`, from files to what `dkvb evaluate` takes."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dkvb.cli import app
from dkvb.embedding import Cache, encoder_fingerprint
from dkvb.embedding import npz as embeddings_file
from dkvb.embedding.encoders import registry

from . import tiny
from .test_run import pixels_encoder


def dkvb(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def encoders(monkeypatch):
    """Two small encoders under names of their own."""
    made = {"tiny": tiny.encoder, "means": pixels_encoder}

    def load(name, **_):
        return made[name]() if name in made else registry.load_encoder(name, **_)

    monkeypatch.setattr("dkvb.embedding.load_encoder", load)


@pytest.fixture
def folder(tmp_path, encoders):
    """Pictures of three colours to learn from and to test on."""
    rng = np.random.default_rng(0)
    for split, n in (("train", 8), ("test", 4)):
        for channel, name in enumerate(("red", "green", "blue")):
            (tmp_path / "pictures" / split / name).mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(0, 60, size=(9, 9, 3), dtype=np.uint8)
                pixels[:, :, channel] += 150
                Image.fromarray(pixels).save(tmp_path / "pictures" / split / name / f"{i}.png")
    return tmp_path


def embed(folder, *more, encoder="means"):
    return dkvb(
        "embed", "--encoder", encoder, "--data", folder / "pictures", "--cache", folder / "cache",
        *more,
    )  # fmt: skip


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_from_pictures_to_a_table(folder, monkeypatch, mapped, dtype):
    result = embed(folder, "--out", folder / "rows", "--dtype", dtype)
    assert result.exit_code == 0, result.output
    train, test = (folder / "rows" / f"pictures-means-{s}.npz" for s in ("train", "test"))
    if mapped:
        monkeypatch.setattr(embeddings_file, "MAPPED_FROM", 1)
    result = dkvb(
        "evaluate", "--train", train, "--test", test, "--keys", train, "--json",
        "--classifier", "prototypes", "--classifier", "slda", "--classifier", "neighbours",
        "--classifier", "kernel",
        "--classes-per-task", "1", "--out", folder / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    accuracies = {k: v["final_accuracy"]["mean"] for k, v in json.loads(result.stdout).items()}
    assert accuracies["prototypes"] == 100.0
    assert min(accuracies.values()) > 60.0


def test_one_split_to_one_file_and_json(folder):
    result = embed(folder, "--split", "test", "--out", folder / "t.npz", "--json")
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)
    assert report["rows"] == report["embedded"] == 12
    assert (report["dimension"], report["dtype"], report["skipped"]) == (3, "float32", [])
    with np.load(folder / "t.npz", allow_pickle=False) as file:
        assert file["x"].shape == (12, 3)
        assert file["y"].tolist() == ["blue"] * 4 + ["green"] * 4 + ["red"] * 4
        assert file["items"].tolist() == list(range(12))
        assert json.loads(str(file["about"]))["encoder"]["name"] == "means"
        assert str(file["encoder"]) == "means"
        assert str(file["encoder_fingerprint"]) == encoder_fingerprint(pixels_encoder().identity)
    (again,) = json.loads(embed(folder, "--split", "test", "--json").stdout)
    assert (again["embedded"], again["entry"]) == (0, report["entry"])


def test_one_split_to_parquet(folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    for out in ("t.npz", "t.parquet"):
        result = embed(folder, "--split", "test", "--out", folder / out)
        assert result.exit_code == 0, result.output
    table = parquet.read_table(folder / "t.parquet")
    with np.load(folder / "t.npz", allow_pickle=False) as file:
        assert (np.stack(table["x"].to_pylist()) == file["x"]).all()
        assert table["y"].to_pylist() == file["y"].tolist()
        assert table["name"].to_pylist() == file["names"].tolist()
        assert table.schema.metadata[b"dkvb.encoder"].decode() == str(file["encoder"])
    for out in ("t.npz", "t.parquet"):
        made = dkvb("fit", folder / f"model-{out}", "--data", folder / out, "--json")
        assert made.exit_code == 0, made.output
    told = [dkvb("predict", folder / "model-t.npz", "--data", folder / out, "--json").stdout
            for out in ("t.npz", "t.parquet")]  # fmt: skip
    assert told[0] == told[1]  # names and labels too
    refused = dkvb("predict", folder / "model-t.npz", "--data", folder / "t.parquet",
                   "--encoder", "tiny")  # fmt: skip
    assert "expected means, which made the embeddings" in refused.output


def test_quiet_prints_nothing_and_pipes_show_no_bar(folder):
    assert embed(folder, "--quiet").output == ""
    result = embed(folder, "--split", "test")
    assert "12 rows of 3 float32, 12 embedded now" in result.stdout
    assert result.stderr == ""


def test_a_terminal_shows_a_bar(folder, monkeypatch):
    monkeypatch.setattr("dkvb.cli.embed.show_progress", lambda quiet: not quiet)
    assert "| 12/12 [" in embed(folder, "--split", "test").stderr


def test_unreadable_pictures_are_named_and_an_error_or_left_out(folder):
    broken = folder / "pictures" / "test" / "red" / "2.png"
    broken.write_bytes(b"no picture")
    result = embed(folder, "--split", "test", "--out", folder / "t.npz")
    assert result.exit_code == 2
    assert "red/2.png: UnidentifiedImageError: the file is no image" in result.stderr
    assert "BytesIO" not in result.stderr
    assert "--on-error skip" in result.stderr
    assert not (folder / "t.npz").exists()
    result = embed(folder, "--split", "test", "--out", folder / "t.npz", "--on-error", "skip")
    assert result.exit_code == 0
    assert "red/2.png" in result.stderr
    with np.load(folder / "t.npz") as file:
        assert file["x"].shape == (11, 3)
        assert 10 not in file["items"]


def test_options_that_change_the_rows_make_other_entries(folder):
    for more in ((), ("--noise", "0.1"), ("--noise", "0.1", "--noise-seed", "1"), ("--limit", "5")):
        assert embed(folder, "--split", "test", *more).exit_code == 0
    assert len(list(Cache(folder / "cache").entries())) == 4


def test_texts_need_an_encoder_of_texts(folder):
    (folder / "t.csv").write_text("text,label\nhello,a\nbye,b\n")
    table = ("--data", folder / "t.csv", "--cache", folder / "cache")
    result = dkvb("embed", "--encoder", "tiny", *table, "--out", folder / "t.npz")
    assert result.exit_code == 0, result.output
    result = dkvb("embed", "--encoder", "means", *table)
    assert result.exit_code == 2
    assert "column of images" in result.stderr


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--split", "val"), "expected a folder val"),
        (("--limit", "0"), "limit: expected a whole number of at least 1"),
        (("--noise", "-1"), "noise: expected a number in [0"),
        (("--workers", "-1"), "workers: expected"),
        (("--batch-size", "-1"), "batch_rows: expected"),
        (("--split", "train", "--split", "test", "--out", "one.npz"), "a folder for several"),
        (("--encoder", "means"), "--encoder: expected once; got it twice"),
    ],
)
def test_bad_input_ends_with_one_line(folder, more, problem):
    result = embed(folder, *more)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_encoder_lists_those_that_are_known(folder):
    result = embed(folder, encoder="resnet51")
    assert result.exit_code == 2
    assert "resnet50 (dkvb[torchvision])" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_cache_ls_verify_and_rm(folder):
    embed(folder, "--shard-rows", "10")
    listed = dkvb("cache", "ls", "--cache", folder / "cache")
    assert "1 kept" in " ".join(listed.stdout.split())  # a long path takes several lines
    assert "means" in listed.stdout
    narrow = CliRunner(env={"COLUMNS": "60"}).invoke(
        app, ["cache", "ls", "--cache", str(folder / "cache")]
    )
    assert max(map(len, narrow.stdout.splitlines())) <= 60
    assert "float32" in narrow.stdout
    (shown,) = json.loads(dkvb("cache", "ls", "--cache", folder / "cache", "--json").stdout)
    assert (shown["items"], shown["done"]) == (24, 24)
    verified = dkvb("cache", "verify", "--cache", folder / "cache")
    assert (verified.exit_code, verified.stdout) == (0, "1 checked, 0 shards damaged\n")

    (entry,) = Cache(folder / "cache").entries()
    (shard,) = entry.folder.glob("00001-*.npy")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    verified = dkvb("cache", "verify", "--cache", folder / "cache")
    assert verified.exit_code == 1
    assert "shard 1: its checksum is wrong" in verified.stdout
    (again,) = json.loads(embed(folder, "--json").stdout)
    assert again["embedded"] == 10
    assert dkvb("cache", "verify", "--cache", folder / "cache").exit_code == 0

    assert dkvb("cache", "rm", "--cache", folder / "cache").exit_code == 2
    assert dkvb("cache", "rm", "ffff", "--cache", folder / "cache").exit_code == 2
    removed = dkvb("cache", "rm", entry.address[:5], "--cache", folder / "cache")
    assert "1 deleted" in removed.stdout
    assert dkvb("cache", "rm", "--all", "--cache", folder / "cache").exit_code == 0
    left = dkvb("cache", "ls", "--cache", folder / "cache").stdout
    assert "0 kept" in " ".join(left.split())


def test_embedding_loads_no_heavy_package_before_it_is_used():
    program = """
import sys
import dkvb.embedding, dkvb.cli
heavy = "torchvision timm open_clip sentence_transformers onnxruntime datasets matplotlib triton"
print([name for name in heavy.split() if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def cache_of(folder, *texts):
    """A cache with one entry per text."""
    for text in texts:
        (folder / "t.csv").write_text(f"text,label\n{text},a\n")
        result = dkvb("embed", "--encoder", "tiny", "--data", folder / "t.csv", "--cache",
                      folder / "cache")  # fmt: skip
        assert result.exit_code == 0, result.output
    return Cache(folder / "cache")


def test_names_with_square_brackets_are_no_markup(folder, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # which would wrap the names
    odd = folder / "photos [" / "2024]"  # "[/2024]" would close a style that was never opened
    odd.mkdir(parents=True)
    (folder / "pictures" / "test").rename(odd / "all")
    data = ("--data", odd / "all", "--cache", folder / "c [" / "x]")
    assert dkvb("embed", "--encoder", "means", *data).exit_code == 0
    listed = dkvb("cache", "ls", "--cache", folder / "c [" / "x]")
    assert listed.exit_code == 0, listed.exception
    assert "photos [/2024]" in listed.stdout.replace("\n", "")
    assert "c [/x]" in listed.stdout.replace("\n", "")


SPOILT = [
    b"", b"{", b"[]", b"null", b"[" * 100_000,
    json.dumps({"format": 1, "identity": 3}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("content", SPOILT)
def test_one_damaged_entry_stops_no_command(folder, content):
    cache = cache_of(folder, "hello", "bye", "again")
    damaged, *_ = cache.entries()
    (damaged.folder / "entry.json").write_bytes(content)
    where = ("--cache", folder / "cache")
    listed = dkvb("cache", "ls", *where)
    assert listed.exit_code == 0, listed.exception
    assert "2 kept" in " ".join(listed.stdout.split())
    assert "1 damaged" in listed.stderr
    assert len(json.loads(dkvb("cache", "ls", "--json", *where).stdout)) == 2
    verified = dkvb("cache", "verify", *where)
    assert verified.exit_code == 1
    assert f"{damaged.address[:12]}: its description was changed" in verified.stdout
    removed = dkvb("cache", "rm", "--all", *where)
    assert (removed.exit_code, removed.stdout.split(",")[0]) == (0, "3 deleted")
    assert not (folder / "cache").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("dimension", "5"), ("dimension", -1), ("shard_rows", 0), ("created", "now"),
     ("encoder_name", 7), ("data_name", None), ("batch_rows", 2**80), ("shard_rows", True)],
)  # fmt: skip
def test_an_entry_whose_fields_are_odd_is_damaged(folder, field, value):
    cache = cache_of(folder, "hello")
    (entry,) = cache.entries()
    (entry.folder / "entry.json").write_text(json.dumps({**entry.about, field: value}))
    assert list(cache.entries()) == []
    assert cache.damaged() == [entry.folder]
    assert dkvb("cache", "ls", "--cache", folder / "cache").exit_code == 0


@pytest.mark.parametrize(
    "change",
    [{"sha256": "../../x"}, {"sha256": None}, {"skipped": 3}, {"skipped": [[1, 2]]}, {"entry": []}],
)
def test_a_note_that_somebody_changed_is_damage(folder, change):
    import hashlib

    cache = cache_of(folder, "hello")
    (entry,) = cache.entries()
    note = entry.folder / "00000.json"
    content = json.dumps({**json.loads(note.read_bytes().partition(b"\n")[0]), **change}).encode()
    note.write_bytes(content + b"\n" + hashlib.sha256(content).hexdigest().encode())
    verified = dkvb("cache", "verify", "--cache", folder / "cache")
    assert verified.exit_code == 1
    assert "shard 0: its note was changed" in verified.stdout
    assert cache_of(folder, "hello").entries()  # made again
    assert dkvb("cache", "verify", "--cache", folder / "cache").exit_code == 0


def test_rm_all_leaves_nothing_of_its_own_and_touches_nothing_else(folder):
    embed(folder)
    cache = folder / "cache"
    (cache / "embeddings" / ("0" * 32)).mkdir()  # what a killed process leaves
    (cache / "embeddings" / "notes.txt").write_text("mine")
    outside = folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (cache / "embeddings" / ("1" * 32)).symlink_to(outside)
    assert (cache / "files.sqlite").is_file()
    assert dkvb("cache", "rm", "--all", "--cache", cache).exit_code == 0
    left = {str(path.relative_to(cache)) for path in cache.rglob("*") if not path.is_symlink()}
    assert left == {"embeddings", "embeddings/notes.txt"}
    assert (outside / "file").read_text() == "mine"


def test_a_shard_cut_in_use_does_not_end_the_process(folder):
    cache = cache_of(folder, "hello")
    (entry,) = cache.entries()
    shard = entry.shard(0)
    with next(entry.folder.glob("00000-*.npy")).open("rb+") as file:
        file.truncate(0)
    assert np.isfinite(shard.rows.sum())
