"""Every experiment end to end at tiny sizes; and what happens to runs that are cut short."""

import json
import sys
from dataclasses import is_dataclass, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode knows no sibling modules
from tiny import NAMES, run, setup

from dkvb._support.files import atomic
from dkvb.evaluation.records import read_records
from paper import experiment
from paper.experiments import EXPERIMENTS, load_experiment
from paper.experiments.sweeps import Sweep

sys.path.pop(0)

pytestmark = pytest.mark.filterwarnings("ignore:n_pairs")


def without_times(records):
    return [replace(record, times={}) for record in records]


def test_every_experiment_of_the_list_has_the_same_shape():
    assert set(NAMES) | {"toy", "imagenet"} == set(EXPERIMENTS)
    for name, description in EXPERIMENTS.items():
        module = load_experiment(name)
        assert is_dataclass(module.PAPER)
        assert type(module.PAPER) is type(module.QUICK)
        if not isinstance(module, Sweep):
            assert f"python -m paper run {name} " in (module.__doc__ or "")  # its command
        assert all(callable(getattr(module, f)) for f in ("make_jobs", "make_table", "plot"))
        assert "\n" not in description


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("experiments")


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_writes_records_table_and_picture(name, folders):
    out, said = folders / name, []
    summary, records = run(name, out)
    assert summary == json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["rows"]
    assert all(row for row in summary["rows"].values())
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    kept, damaged = read_records(out / "records.jsonl")
    assert not damaged
    assert kept == records
    assert len({record.run_id for record in records}) == len(records)

    # A second time nothing is run, and nothing changes.
    picture = (out / f"{name}.png").read_bytes()
    again, same = run(name, out, log=said.append)
    assert (again, same) == (summary, records)
    assert said == [
        f"{out / 'records.jsonl'}: {len(records)} of {len(records)} runs finished; 0 to run"
    ]
    redrawn = experiment.plot_only(name, out)
    assert redrawn["rows"] == summary["rows"]
    assert (out / f"{name}.png").read_bytes() == picture


@pytest.mark.parametrize("name", ["granularity", "values", "weight-decay", "decoders"])
def test_a_deleted_and_a_cut_line_are_redone_with_the_same_numbers(name, folders, tmp_path):
    path, said = tmp_path / "records.jsonl", []
    _, before = run(name, tmp_path, seeds=(1, 2))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][: len(lines[1]) // 2] + b"\n"
    path.write_bytes(b"".join(lines[1:]))  # the first is gone, the second cut
    summary, after = run(name, tmp_path, seeds=(1, 2), log=said.append)
    assert without_times(after) == without_times(before)
    assert summary["rows"]
    left = len(before) - 2
    assert f"{left} of {len(before)} runs finished, 1 damaged (line 1); 2 to run" in said[0]
    untouched = {r.run_id: r for r in before[2:]}
    assert all(r == untouched[r.run_id] for r in after if r.run_id in untouched)
    assert (tmp_path / "records.jsonl.damaged").read_bytes() == lines[1]
    run(name, tmp_path, seeds=(1, 2), log=said.append)
    assert said[1:] == [f"{path}: {len(before)} of {len(before)} runs finished; 0 to run"]


def test_more_seeds_run_only_what_is_new(tmp_path):
    run("pairs", tmp_path)
    said = []
    _, records = run("pairs", tmp_path, seeds=(1, 2), log=said.append)
    assert "4 of 8 runs finished; 4 to run" in said[0]
    assert sorted({record.seed for record in records}) == [1, 2]


def test_equal_runs_of_different_experiments_are_known_to_be_equal(tmp_path):
    _, pairs = run("pairs", tmp_path / "pairs")
    known = {record.run_id: record for record in pairs}
    path = tmp_path / "codebooks" / "records.jsonl"
    _, codebooks = run("codebooks", tmp_path / "codebooks", reusable=known)
    shared = [record for record in codebooks if record.run_id in known]
    assert {r.config["settings"]["n_codebooks"] for r in shared} == {8}  # the base model
    assert {r.classifier for r in shared} == {"bottleneck:n_codebooks=8"}
    assert len(read_records(path).records) == len(codebooks)


def test_keys_are_said_as_they_are(folders):
    _, records = run("cifar10", folders / "sizes")
    sizes = [r.config["keys"] for r in records if r.classifier == "bottleneck"]
    assert {(s["n_codebooks"], s["n_pairs"], s["key_dim"]) for s in sizes} == {(8, 16, 4)}
    assert records[0].config["data"] == {"train": "cifar10", "keys": "cifar100", "encoder": "tiny"}
    assert len(records[0].extra["confusion"]) == 4


def test_noise_on_pixels_is_measured_where_files_are(folders):
    _, records = run("noise", folders / "pixels")
    assert [r.classifier for r in records] == ["bottleneck", "linear", "prototypes"]
    for record in records:
        assert [point["alpha"] for point in record.extra["pixels"]] == [0, 0.1]
        assert record.extra["pixels"][0]["accuracy"] == record.extra["embeddings"][0]["accuracy"]
        assert record.extra["inputs"] == []
    assert records[0].extra["embeddings"][0]["codes_changed"] == 0  # α = 0


def test_a_shift_without_changed_codes_is_exactly_none(folders):
    _, records = run("theorem", folders / "theorem-terms")
    bottleneck = [r for r in records if r.classifier == "bottleneck"]
    assert [r.metrics["unchanged_shift"] for r in bottleneck] == [0.0]
    assert any(point["unchanged_rows"] > 0 for point in bottleneck[0].extra["shift"])
    keys = next(r for r in records if r.classifier == "keys")
    assert keys.metrics["codes_changed_from_null_space"] == 0
    assert keys.metrics["codes_changed_by_any"] > 0


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("epochs", "7", 7),
        ("learning_rate", "1", 1.0),
        ("evaluate_every", "5", 5),
        ("evaluate_every", "None", None),
        ("values", "[2, 3]", (2, 3)),
    ],
)
def test_fields_can_be_changed(name, text, expected):
    config = experiment.make_config("key-dim", quick=False, changes={name: text})
    assert getattr(config, name) == expected
    assert type(getattr(config, name)) is type(expected)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("speed", "1", "--set: expected one of n_codebooks, .*got 'speed'"),
        ("epochs", "many", "--set epochs: expected a value like 2000; got 'many'"),
        ("epochs", "1.5", "--set epochs: expected"),
        ("values", "3", "--set values: expected a value like"),
    ],
)
def test_bad_changes_are_refused(name, text, message):
    with pytest.raises(ValueError, match=message):
        experiment.make_config("key-dim", quick=False, changes={name: text})


def test_redrawing_leaves_damaged_lines_where_they_are(tmp_path):
    run("values", tmp_path)
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(b'{"classifier": "bottle')
    before, said = (tmp_path / "records.jsonl").read_bytes(), []
    experiment.plot_only("values", tmp_path, said.append)
    assert "left out 1 damaged (line 2)" in said[0]
    assert (tmp_path / "records.jsonl").read_bytes() == before
    assert not (tmp_path / "records.jsonl.damaged").exists()


def test_a_summary_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    run("values", tmp_path)
    before = (tmp_path / "summary.json").read_bytes()

    def fail(old, new):
        raise OSError("No space left on device")

    monkeypatch.setattr(atomic, "rename", fail)
    with pytest.raises(OSError, match="No space"):
        experiment.plot_only("values", tmp_path)
    assert (tmp_path / "summary.json").read_bytes() == before


def test_redrawing_needs_records(tmp_path):
    with pytest.raises(ValueError, match=r"--out .*: expected a folder with records.jsonl"):
        experiment.plot_only("pairs", tmp_path)
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(ValueError, match=r"--out .*: expected a folder with records.jsonl"):
        experiment.plot_only("pairs", tmp_path)


def test_a_folder_holds_one_experiment(folders):
    run("fly", folders / "fly")
    with pytest.raises(ValueError, match=r"expected a folder of pairs; got one of fly"):
        experiment.plot_only("pairs", folders / "fly")
    (folders / "fly" / "summary.json").unlink()
    with pytest.raises(ValueError, match=r"expected records of pairs; got those of another"):
        experiment.plot_only("pairs", folders / "fly")


def test_seeds_are_part_of_the_setup():
    assert setup("pairs", seeds=(3, 4)).seeds == (3, 4)
