"""The ImageNet experiment on synthetic embeddings, and benchmarks of its shape, all very small."""

import json
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from paper import experiment
from paper.experiments import imagenet
from paper.source import Bundled, Prepared
from paper.synthetic import Mixture

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks is no part of the package
shape_on_one_machine = import_module("benchmarks.imagenet")

TINY = replace(
    imagenet.QUICK,
    n_classes=6, n_rows=300, n_test_rows=90, n_key_rows=200, width=16,
    n_codebooks=8, n_pairs=16, key_dim=4, key_epochs=1, epochs=2,
)  # fmt: skip


def run(source, out):
    with pytest.warns(UserWarning, match="synthetic embeddings of 300 × 16"):
        jobs = imagenet.make_jobs(experiment.Setup(source, (1,), TINY))
    out.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows for so many keys
        return experiment.run_experiment("imagenet", jobs, out)


def test_every_row_says_that_the_data_are_synthetic(tmp_path):
    summary, records = run(Bundled(), tmp_path / "out")
    assert len(summary["rows"]) == 2
    assert all("synthetic" in name for name in summary["rows"])
    assert all(record.config["data"]["train"] == "imagenet (synthetic)" for record in records)
    assert len(records[0].tasks) == 3
    assert (tmp_path / "out" / "imagenet.png").exists()


def test_rows_lie_in_files_and_are_made_once(tmp_path):
    _, first = run(Prepared(tmp_path / "data"), tmp_path / "one")
    file = tmp_path / "data" / "imagenet-synthetic-train.npy"
    made = file.stat().st_mtime_ns
    _, again = run(Prepared(tmp_path / "data"), tmp_path / "two")
    assert file.stat().st_mtime_ns == made
    assert [r.metrics for r in first] == [r.metrics for r in again]


def test_a_file_that_was_not_finished_is_made_again(tmp_path):
    mixture = Mixture(3, 4, 20, seed=1)
    before = np.array(mixture.file(tmp_path, "rows"))
    assert np.array_equal(before, mixture.array())
    assert json.loads((tmp_path / "rows.json").read_text())["synthetic"] is True
    np.lib.format.open_memmap(tmp_path / "rows.npy", mode="r+")[:] = 0
    assert not mixture.file(tmp_path, "rows").any()  # believed
    (tmp_path / "rows.json").unlink()
    assert np.array_equal(mixture.file(tmp_path, "rows"), before)
    other = Mixture(3, 4, 25, seed=1).file(tmp_path, "rows")
    assert other.shape == (25, 4)


def test_classes_are_even_and_sorted_and_samples_differ():
    mixture = Mixture(7, 4, 100, seed=1)
    y = mixture.labels()
    assert (np.diff(y) >= 0).all()
    assert set(np.bincount(y)) == {14, 15}
    assert mixture.array().dtype == np.float16
    assert not np.array_equal(mixture.array(), replace(mixture, sample=1).array())


def test_the_shape_on_one_machine_leaves_records(tmp_path):
    settings = shape_on_one_machine.Settings(
        "cpu", n_rows=600, n_test_rows=60, n_key_rows=200, n_classes=6, width=16,
        n_codebooks=8, n_pairs=16, key_dim=4, key_epochs=1, epochs=2, batch=32,
    )  # fmt: skip
    assert shape_on_one_machine.run(settings, tmp_path / "results.jsonl", tmp_path) == 0
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    rows = {line["op"]: line for line in lines}
    assert all(line["synthetic"] for line in lines)
    assert rows["sgd"]["steps"] == 3 * 2 * 7  # tasks, epochs, batches of 200 rows
    assert rows["sgd, predicting"]["accuracy"] > 0.4
    assert rows["snapping"]["rows"] == 600
