import contextlib
import io
import json
import logging
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dkvb import __version__
from dkvb._support.files import atomic
from dkvb.cli import app
from dkvb.cli._rows import CLASSIFIERS
from dkvb.cli._shared import show_progress
from dkvb.embedding.npz import read_embeddings, read_labelled
from dkvb.estimators.registry import classifier_names
from dkvb.evaluation.grid import parse_spec
from dkvb.evaluation.paper import EXPERIMENTS
from dkvb.evaluation.plots import plot_accuracy
from dkvb.evaluation.records import read_records


def draw(rng, rows, width=6, classes=4):
    y = np.repeat(np.arange(classes), rows)
    return {"x": 9 * np.eye(classes, width)[y] + rng.normal(size=(len(y), width)), "y": y}


@pytest.fixture
def files(tmp_path, rng):
    """A folder with good files: four far-apart classes."""
    np.savez(tmp_path / "train.npz", **draw(rng, 12))
    np.savez(tmp_path / "test.npz", **draw(rng, 5))
    np.savez(tmp_path / "keys.npz", x=draw(rng, 10)["x"])
    return tmp_path


def dkvb(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def evaluate(folder, *more, classifier="prototypes", train="train.npz", test="test.npz"):
    return dkvb(
        "evaluate", "--train", folder / train, "--test", folder / test,
        "--classifier", classifier, "--out", folder / "out", *more,
    )  # fmt: skip


def test_evaluate_writes_records_summary_and_picture(files):
    result = evaluate(files, "--classifier", "linear:learning_rate=0.1", "--seeds", "1,2")
    assert result.exit_code == 0, result.output
    assert "prototypes" in result.stdout
    assert "forgetting" in result.stdout
    out = files / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "accuracy.png", "records.jsonl", "summary.json",
    ]  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary) == ["prototypes", "linear:learning_rate=0.1"]
    assert summary["prototypes"]["final_accuracy"] == {"mean": 100.0, "std": 0.0}
    assert summary["prototypes"]["forgetting"] == {"mean": 0.0, "std": 0.0}
    assert {"average_incremental_accuracy", "top5_accuracy"} <= summary["prototypes"].keys()
    records, damaged = read_records(out / "records.jsonl")
    assert not damaged
    assert [(r.classifier, r.seed) for r in records] == [
        (c, s) for s in (1, 2) for c in ("prototypes", "linear:learning_rate=0.1")
    ]
    assert {r.stream for r in records} == {"B0-Inc2"}
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_both_orders_and_json(files):
    orders = ("--order", "class-incremental", "--order", "iid")
    result = evaluate(files, *orders, "--classes-per-task", "3", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert list(summary) == ["prototypes (B0-Inc3)", "prototypes (iid)"]
    assert summary == json.loads((files / "out" / "summary.json").read_text())


def test_iid_alone_keeps_the_key_as_typed(files):
    assert evaluate(files, "--order", "iid").exit_code == 0
    summary = json.loads((files / "out" / "summary.json").read_text())
    assert list(summary) == ["prototypes"]
    assert summary["prototypes"]["forgetting"]["mean"] == 0.0


def test_epochs_and_evaluate_every_reach_the_loop(files):
    result = evaluate(
        files, "--epochs", "5", "--evaluate-every", "2", "--classifier", "linear:epochs=3",
        "--quiet", classifier="linear",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.output == ""
    records, _ = read_records(files / "out" / "records.jsonl")
    assert [p.epoch for p in records[0].curve] == [2, 4, 5, 2, 4, 5]
    assert [p.epoch for p in records[1].curve] == [2, 3, 2, 3]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.uint8])
def test_embeddings_of_any_numeric_kind(files, kind, rng):
    data = draw(rng, 5)
    path = files / "train.npz"
    np.savez(path, x=np.abs(data["x"]).astype(kind), y=data["y"])
    x, y = read_labelled(path)
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(x, np.abs(data["x"]).astype(kind).astype(np.float32))


def test_string_labels(files, rng):
    names = np.array(["ant", "bee", "cat", "dog"])
    for name in ("train.npz", "test.npz"):
        data = draw(rng, 5)
        np.savez(files / name, x=data["x"], y=names[data["y"]])
    assert evaluate(files).exit_code == 0
    records, _ = read_records(files / "out" / "records.jsonl")
    assert records[0].classes == names.tolist()


def test_a_second_run_continues_the_first(files):
    assert evaluate(files).exit_code == 0
    more = evaluate(files, "--seeds", "1,2", "--json")
    path = files / "out" / "records.jsonl"
    assert more.stderr == f"{path}: 1 of 2 runs finished; 1 to run\n"
    records, _ = read_records(path)
    assert [record.seed for record in records] == [1, 2]
    path.write_text(path.read_text().splitlines()[1][:-9])  # the first is gone, the second cut
    again = evaluate(files, "--seeds", "1,2", "--json")
    assert "0 of 2 runs finished, 1 damaged (line 1); 2 to run" in again.stderr
    before, after = (json.loads(run.stdout)["prototypes"] for run in (more, again))
    times = {"learn_seconds", "predict_seconds"}
    assert all(after[key] == before[key] for key in before.keys() - times)
    other = evaluate(files, "--classes-per-task", "1")
    assert "0 of 1 runs finished, 2 of other settings; 1 to run\n" in other.stderr


def test_the_summary_is_of_what_was_asked_for(files):
    assert evaluate(files, "--classifier", "slda").exit_code == 0
    assert "1 of other settings; 0 to run" in evaluate(files).stderr
    assert list(json.loads((files / "out" / "summary.json").read_text())) == ["prototypes"]
    assert len(read_records(files / "out" / "records.jsonl").records) == 2
    assert "are of the requested runs" in " ".join(dkvb("evaluate", "--help").stdout.split())


def test_a_summary_that_cannot_be_written_leaves_the_old_one(files, monkeypatch):
    assert evaluate(files).exit_code == 0
    path = files / "out" / "summary.json"
    before = path.read_bytes()

    def fail(old, new):
        raise OSError("No space left on device")

    monkeypatch.setattr(atomic, "rename", fail)
    assert evaluate(files).exit_code != 0
    assert path.read_bytes() == before


# -------------------------------------------------------------------------------- bad input


def save(name, **changes):
    """A change of one file: arrays replaced, or taken out where None."""

    def change(folder, rng):
        arrays = draw(rng, 6) | changes
        np.savez(folder / name, **{k: v for k, v in arrays.items() if v is not None})

    return change


def save_bytes(name, make):
    def change(folder, rng):
        path = folder / name
        path.write_bytes(make(path.read_bytes()))

    return change


def npy_bytes(_):
    buffer = io.BytesIO()
    np.save(buffer, np.ones((3, 3)))
    return buffer.getvalue()


def poisoned(value):
    x = np.ones((24, 6))
    x[7, 3] = value
    return x


BAD_FILES = {
    "NaN": (save("train.npz", x=poisoned(np.nan)), "--train .*, x: .*NaN.*row 7"),
    "infinite": (save("test.npz", x=poisoned(np.inf)), "--test .*, x: .*infinity.*row 7"),
    "too large for float32": (save("train.npz", x=poisoned(1e300)), "--train .*, x: .*infinity"),
    "NaN keys": (save("keys.npz", x=poisoned(np.nan)), "--keys .*, x: .*NaN"),
    "width of test": (save("test.npz", x=np.ones((24, 5))), "--test .*width 6.*got 5"),
    "width of keys": (save("keys.npz", x=np.ones((24, 7))), "--keys .*width 6.*got 7"),
    "text x": (save("train.npz", x=np.full((24, 6), "a")), "--train .*, x: .*dtype"),
    "complex x": (save("train.npz", x=np.ones((24, 6), complex)), "--train .*, x: .*dtype"),
    "pickled x": (save("train.npz", x=np.full((24, 6), None, object)), "--train .*cannot be read"),
    "one-dimensional x": (save("train.npz", x=np.ones(24)), "--train .*, x: .*2-d"),
    "no rows": (save("train.npz", x=np.ones((0, 6)), y=np.ones(0, int)), "--train .*at least one"),
    "no columns": (save("train.npz", x=np.ones((24, 0))), "--train .*at least one"),
    "short y": (save("train.npz", y=np.ones(23, int)), r"--train .*, y: .*\(24,\).*\(23,\)"),
    "two-dimensional y": (save("test.npz", y=np.ones((24, 1), int)), r"--test .*, y: .*\(24, 1\)"),
    "float y": (save("train.npz", y=np.ones(24)), "--train .*, y: .*integers or strings"),
    "pickled y": (save("train.npz", y=np.array([0, "a"] * 12, object)), "--train .*cannot be read"),
    "huge label": (save("test.npz", y=np.full(24, 2**64 - 1, np.uint64)), "--test .*2\\*\\*63"),
    "mixed kinds": (save("test.npz", y=np.full(24, "a")), "--test .*integers.*got strings"),
    "no x": (save("train.npz", x=None), "--train .*expected arrays x and y; got y; add x"),
    "no y": (save("test.npz", y=None), "--test .*expected arrays x and y; got x; add y"),
    "no x in keys": (save("keys.npz", x=None), "--keys .*expected arrays x;"),
    "truncated": (save_bytes("train.npz", lambda b: b[: len(b) // 2]), "--train .*cannot be read"),
    "empty file": (save_bytes("train.npz", lambda b: b""), "--train .*cannot be read"),
    "text file": (save_bytes("test.npz", lambda b: b"x,y\n1,2\n"), "--test .*cannot be read"),
    "npy file": (save_bytes("keys.npz", npy_bytes), "--keys .*cannot be read"),
    "no file": (lambda folder, rng: (folder / "test.npz").unlink(), "--test: .*no file"),
}  # fmt: skip


def assert_refused(result, folder, message):
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr), result.stderr
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_in_one_line(files, rng, case):
    spoil, message = BAD_FILES[case]
    spoil(files, rng)
    result = evaluate(files, "--keys", files / "keys.npz")
    assert_refused(result, files, message)
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("classifier", "more", "message"),
    [
        (
            "perceptron",
            (),
            "classifier, unless module:Class: expected one of .*'prototypes'.*got 'perceptron'",
        ),
        ("", (), "unless module:Class: expected one of"),
        ("linear:speed=1", (), "speed"),
        ("linear:epochs", (), "NAME:key=value"),
        ("linear:epochs=1,epochs=2", (), "each key once"),
        ("linear:epochs=-3", (), "epochs"),
        ("linear:learning_rate=fast", (), "learning_rate"),
        ("prototypes", ("--classifier", "prototypes"), "classifier: expected .*each once"),
        ("prototypes", ("--classifier", "linear:epochs=0"), "epochs"),
        ("prototypes", ("--seeds", "1,x"), "--seeds: expected"),
        ("prototypes", ("--seeds", ""), "--seeds: expected"),
        ("prototypes", ("--seeds", "1,1"), "seeds: expected .*each once"),
        ("prototypes", ("--classes-per-task", "0"), "classes_per_task: expected"),
        ("prototypes", ("--epochs", "0"), "epochs: expected"),
        ("prototypes", ("--evaluate-every", "0"), "evaluate_every: expected"),
        ("prototypes", ("--order", "sorted"), "--order"),
        ("prototypes", ("--device", "abacus"), "--device"),
    ],
)
def test_bad_settings_are_refused(files, classifier, more, message):
    assert_refused(evaluate(files, *more, classifier=classifier), files, message)


def test_no_cuda_is_said_so(files, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert_refused(evaluate(files, "--device", "cuda"), files, "--device: .*use cpu")


def test_out_that_is_a_file(files):
    (files / "out").write_text("mine")
    result = evaluate(files)
    assert result.exit_code == 2
    assert "--out: expected a folder" in result.stderr
    assert (files / "out").read_text() == "mine"


@settings(max_examples=60)
@given(data=st.data())
def test_mutated_files_are_refused_or_read(tmp_path_factory, data):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.arange(12.0).reshape(4, 3), y=np.arange(4))
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("mutated") / "file.npz"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(ValueError, TypeError):  # what the command line shows in one line
        x, y = read_labelled(path)
        assert np.isfinite(x).all()
        assert y.shape == (len(x),)


# ------------------------------------------------------------------------- the rest of the face


def test_spec():
    spec = parse_spec("linear: epochs = 2 ,learning_rate=0.5")
    assert (spec.name, spec.settings) == ("linear", {"epochs": "2", "learning_rate": "0.5"})


def test_keys_need_no_labels(files):
    assert read_embeddings(files / "keys.npz").shape == (40, 6)


def test_version_and_help():
    assert dkvb("--version").stdout.strip() == f"dkvb {__version__}"
    assert "evaluate" in dkvb("--help").stdout


def test_help_names_no_type_for_flags():
    page = dkvb("fit", "--help").stdout
    assert "--overwrite" in page
    assert "<path>" in page
    assert "<bool>" not in page + dkvb("--help").stdout + dkvb("cache", "--help").stdout


def test_help_says_what_a_command_needs_in_whole_lines():
    pages = {name: " ".join(dkvb(name, "--help").stdout.replace("│", " ").split())
             for name in ("fit", "evaluate", "learn")}  # fmt: skip
    assert "Classifiers on frozen encoders: learn new classes without" in dkvb("--help").stdout
    for name in ("fit", "evaluate"):
        assert "Encoder: required for images and texts" in pages[name]
        assert "Classifier to train: kernel, bottleneck, " in pages[name]
    assert "the one stored in the model" in pages["learn"]
    assert "picture; required with --train." in pages["evaluate"]
    assert sorted(CLASSIFIERS.split(", ")) == sorted(classifier_names())
    for command in ("forget", "evaluate", "merge", "report"):
        usage = dkvb(command, "--help").stdout.partition("╭")[0]
        for line in usage.splitlines()[3:]:
            assert len(line.rstrip()) > 50 or not line.strip() or line.rstrip().endswith(".")


def test_help_is_quick_because_nothing_heavy_is_imported():
    heavy = {"torch", "sklearn", "matplotlib", "numba", "numpy", "scipy", "filelock"}
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print('heavy', sorted({heavy!r} & sys.modules.keys())))\n"
        "from dkvb.cli import app\n"
        "app(['--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--version" in done.stdout
    assert done.stdout.endswith("heavy []\n")


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (True, True), (False, False)])
def test_compilation_is_announced_on_a_terminal_only(terminal, quiet, monkeypatch, capsys):
    log = logging.getLogger("dkvb.kernels")
    monkeypatch.setattr(log, "handlers", [])
    before = log.level
    try:
        monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
        assert show_progress(quiet) is (terminal and not quiet)
        log.info("compiling CPU kernels")
    finally:
        log.setLevel(before)
    assert ("compiling CPU kernels" in capsys.readouterr().err) is (terminal and not quiet)


def test_the_real_command_in_a_pipe(files):
    command = [sys.executable, "-m", "dkvb", "evaluate", "--train", "train.npz"]
    command += ["--test", "test.npz", "--classifier", "prototypes", "--out", "out"]
    good = subprocess.run(command, cwd=files, capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stderr
    assert "100.00 " in good.stdout
    assert str(Path("out/accuracy.png")) in good.stdout
    assert good.stderr == ""  # no progress bars in a pipe
    assert "\x1b" not in good.stdout
    (files / "train.npz").write_bytes(b"")
    bad = subprocess.run(command, cwd=files, capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: --train train.npz: expected an npz file")
    assert bad.stderr.count("\n") == 1


def reproduce(out, *more):
    return dkvb("reproduce", "granularity", "--quick", "--out", out, *_SMALL, *more)


_SMALL = ("--set", "n_codebooks=4", "--set", "n_pairs=8", "--set", "key_epochs=1",
          "--set", "epochs=1")  # fmt: skip


def test_reproduce_runs_an_experiment_once(tmp_path):
    out = tmp_path / "out"
    first = reproduce(out)
    assert first.exit_code == 0, first.output
    assert "5 tasks of 2" in first.stdout
    assert "quick run: decides nothing: the number of classes per task does not" in first.stdout
    assert not re.search("contradicted:|holds:", first.stdout)
    assert first.stderr == ""
    assert {p.name for p in out.iterdir()} == {"granularity.png", "records.jsonl", "summary.json"}
    again = reproduce(out)
    assert again.stdout == first.stdout
    assert again.stderr == f"{out / 'records.jsonl'}: 4 of 4 runs finished; 0 to run\n"
    redrawn = dkvb("reproduce", "granularity", "--plot-only", "--quick", "--out", out, "--json")
    assert list(json.loads(redrawn.stdout)["rows"]) == list(
        json.loads((out / "summary.json").read_text())["rows"]
    )
    assert reproduce(out, "--quiet").output == ""


def test_several_experiments_share_what_they_can(tmp_path):
    both = ("granularity", "label-smoothing")
    result = dkvb("reproduce", *both, "--quick", "--out", tmp_path, *_SMALL)
    assert result.exit_code == 0, result.output
    records = [read_records(tmp_path / name / "records.jsonl").records for name in both]
    shared = {r.run_id for r in records[0]} & {r.run_id for r in records[1]}
    assert len(shared) == 1


# The command, which waits in the middle of the third record for its end, however fast it runs.
_SLOW_TO_WRITE = """
import time
from dkvb.evaluation import records
from dkvb.cli import main

append = records.append_record

def append_two(path, record):
    if path.exists() and path.read_bytes().count(b"\\n") == 2:
        with path.open("ab") as file:
            file.write(record.to_json().encode()[:100])
        time.sleep(900)
    append(path, record)

records.append_record = append_two
main()
"""


def test_a_killed_command_continues(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    seeds = ("--seeds", "1,2")
    assert reproduce(whole, *seeds).exit_code == 0
    command = [sys.executable, "-c", _SLOW_TO_WRITE, "reproduce", "granularity", "--quick"]
    command += [*_SMALL, *seeds, "--out", killed]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    path = killed / "records.jsonl"
    try:
        while not (path.exists() and re.fullmatch(rb"(.+\n){2}.+", path.read_bytes())):
            assert running.poll() is None
            time.sleep(0.01)
    finally:
        running.kill()
        running.wait()
    done = reproduce(killed, *seeds)
    assert "2 of 8 runs finished, 1 damaged (line 3); 6 to run" in done.stderr
    ours, theirs = (
        {r.run_id: replace(r, times={}) for r in read_records(folder / "records.jsonl").records}
        for folder in (killed, whole)
    )
    assert ours == theirs
    assert len(ours) == 8
    summaries = [json.loads((f / "summary.json").read_text()) for f in (killed, whole)]
    assert summaries[0] == summaries[1]


def test_reproduce_names_its_experiments(tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # which would wrap the lines
    listed = dkvb("reproduce", "--list")
    assert listed.exit_code == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names[:4] == ["toy", "cifar10", "loss", "key-dim"]
    assert len(names) == len(EXPERIMENTS)
    assert "| measured at full length on resnet50" in listed.stdout
    assert "not measurable here: no CLIP embeddings" in listed.stdout
    status = json.loads(dkvb("reproduce", "--list", "--json").stdout)
    assert status["imagenet"]["status"].startswith("measured on synthetic embeddings")
    for arguments in (("nonesuch",), ()):
        refused = dkvb("reproduce", *arguments, "--out", tmp_path / "out")
        assert_refused(refused, tmp_path, "NAME: expected")
    bad = (("--seeds", "one"), "--seeds: expected"), (("--set", "epochs"), "FIELD=VALUE")
    for arguments, message in (*bad, (("--set", "speed=1"), "--set: expected one of n_codebooks")):
        refused = dkvb("reproduce", "pairs", "--quick", "--out", tmp_path / "out", *arguments)
        assert_refused(refused, tmp_path, message)
    refused = dkvb("reproduce", "pairs", "--data", tmp_path, "--out", tmp_path / "out")
    assert_refused(refused, tmp_path, "cifar10-resnet50-train.npz.*dkvb embed --encoder resnet50")
    refused = dkvb("reproduce", "pairs", "--plot-only", "--out", tmp_path / "out")
    assert_refused(refused, tmp_path, "records.jsonl")


def test_demo_shows_its_table_and_names_its_picture(tmp_path, monkeypatch):
    def run(out, progress):
        table = {"bottleneck": {"class-incremental": {"mean": 79.0, "std": 0.5}}}
        return {"table": table, "title": "CIFAR-10", "picture": out / "accuracy.png"}

    monkeypatch.setitem(sys.modules, "dkvb.evaluation.demo", SimpleNamespace(run=run))
    result = dkvb("demo", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "79.00 ± 0.50" in result.stdout
    assert str(tmp_path / "out" / "accuracy.png") in result.stdout
    assert dkvb("demo", "--out", tmp_path / "out", "--quiet").output == ""


def widest(text):
    return max(map(len, text.splitlines()))


def test_tables_keep_to_the_columns_of_the_environment(files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = dkvb("reproduce", "--list").stdout
    assert widest(listed) <= 80
    assert [line.split()[0] for line in listed.splitlines() if line[0] != " "] == list(EXPERIMENTS)
    learned = evaluate(files, "--classifier", "linear:learning_rate=0.1,bias=false",
                       "--seeds", "1,2")  # fmt: skip
    table, _, picture = learned.stdout.partition("picture: ")
    assert picture
    assert widest(table) <= 80
    assert "learning" in table
    names = ["bottleneck (the paper's)", "logistic regression, all at once"]
    metrics = ["class-incremental", "iid", "forgetting", "training (s)"]
    row = {key: {"mean": 79.04, "std": 10.52} for key in metrics}
    run = SimpleNamespace(
        run=lambda out, progress: {
            "table": dict.fromkeys(names, row),
            "title": "CIFAR-10 " * 20,
            "picture": "",
        }
    )
    monkeypatch.setitem(sys.modules, "dkvb.evaluation.demo", run)
    shown = dkvb("demo", "--out", files / "demo").stdout
    assert widest(shown) <= 80
    assert shown.count("79.04 ± 10.52") == 8
    assert "logistic" in shown


def test_a_bar_is_shown_only_where_something_is_run(files, monkeypatch):
    monkeypatch.setattr("dkvb.cli.evaluate.show_progress", lambda quiet: True)
    assert "run" in evaluate(files).stderr
    assert evaluate(files).stderr.endswith(": 1 of 1 runs finished; 0 to run\n")
    assert "?" not in evaluate(files).stderr


def test_pictures_need_records(tmp_path):
    with pytest.raises(ValueError, match="records: expected at least one"):
        plot_accuracy([], tmp_path / "a.png")


def test_labels_that_the_train_file_lacks_are_an_error(files, rng):
    other = draw(rng, 5)
    np.savez(files / "other.npz", x=other["x"], y=other["y"] + 100)
    result = evaluate(files, test="other.npz")
    assert result.exit_code == 2
    assert "labels that the train file has" in " ".join(result.stderr.split())
    assert not (files / "out").exists()


def test_a_seed_beyond_32_bits_is_an_error(files):
    result = evaluate(files, "--seeds", str(1 << 32))
    assert result.exit_code == 2
    assert "from 0 to 2**32 - 1" in " ".join(result.stderr.split())


@pytest.mark.parametrize("option", ["--test", "--keys"])
def test_evaluate_refuses_embeddings_of_another_encoder(option, tmp_path, rng):
    files = {name: tmp_path / f"{name[2:]}.npz" for name in ("--train", "--test", "--keys")}
    for name, path in files.items():
        told = {"encoder": "mine", "encoder_fingerprint": "b" if name == option else "a"}
        np.savez(path, x=rng.normal(size=(20, 4)), y=np.arange(20) % 2, **told)
    given = [part for name, path in files.items() for part in (name, str(path))]
    out = ["--classifier", "prototypes", "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, ["evaluate", *given, *out])
    assert found.exit_code == 2
    assert f"{option} " in found.stderr
    assert "its weights or settings differ" in found.stderr
    assert not (tmp_path / "out").exists()
