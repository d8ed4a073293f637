"""Records of version 0.1: read with the present names, and not run again."""

import json
from pathlib import Path

import numpy as np
import pytest

from dkvb.evaluation.grid import Data, Grid, parse_spec
from dkvb.evaluation.jobs import RunSpec
from dkvb.evaluation.paper.experiment import read_experiment_name
from dkvb.evaluation.records import RunRecord, read_records
from dkvb.evaluation.report.collect import collect

RESULTS = Path(__file__).parents[2] / "results"

OLD = {
    "classifier": "bottleneck:rule=counts", "stream": "B0-Inc1", "seed": 1, "classes": ["a", "b"],
    "stages": [["b"], ["a"]],
    "config": {
        "params": {"rule": "counts", "smoothing": 0.02, "prior": "uniform", "search": "selected",
                   "reject": None, "temperature": 0.8, "n_pairs": 4},
        "settings": {"rule": "counts", "prior": "empirical"},
    },
    "versions": {"dkvb": "0.1.0"},
    "curve": [
        {"stage": 0, "epoch": None, "accuracy": 0.45, "per_class": [0.0, 0.9], "test_loss": None,
         "train_loss": None},
        {"stage": 1, "epoch": None, "accuracy": 0.7, "per_class": [0.6, 0.8], "test_loss": None,
         "train_loss": None},
    ],
    "accuracy_matrix": [[0.9, 0.0], [0.8, 0.6]], "metrics": {"final_accuracy": 0.7}, "times": {},
    "cell": "0123456789abcdef", "extra": {},
}  # fmt: skip


def test_a_record_of_0_1_is_read_with_the_present_names():
    record = RunRecord.from_json(json.dumps(OLD))
    assert record.tasks == [["b"], ["a"]]
    assert record.run_id == "0123456789abcdef"
    assert [point.task for point in record.curve] == [0, 1]
    assert [point.seen_accuracy for point in record.curve] == [0.9, 0.7]
    assert record.config["params"] == {
        "rule": "counts", "pseudocount": 0.02, "class_weight": "balanced",
        "candidate_keys": "used", "novelty_threshold": None, "read_temperature": 0.8, "n_pairs": 4,
    }  # fmt: skip
    assert record.config["settings"] == {"rule": "counts", "class_weight": None}
    assert RunRecord.from_json(record.to_json()) == record


def test_a_temperature_without_a_rule_keeps_its_name():
    old = OLD | {"config": {"settings": {"temperature": 1.0}}}
    assert RunRecord.from_json(json.dumps(old)).config == {"settings": {"temperature": 1.0}}


@pytest.mark.parametrize(
    "path", sorted(RESULTS.rglob("records.jsonl")), ids=lambda p: p.parent.name
)
def test_all_records_of_the_repository_are_read(path):
    found = read_records(path)
    assert found.records
    assert found.damaged == []
    for record in found.records:
        params = record.config.get("params", {})
        if "rule" in params and record.versions["dkvb"] == "0.1.0":
            assert params["store_samples"] is False


def zeros():
    x, y = np.zeros((4, 2), np.float32), np.arange(4)
    return Data((x, y), (x, y), x, {"train": "zeros"})


# The ids below were written by version 0.1 for the same runs, under its names of the parameters.
def test_runs_of_0_1_have_the_same_id():
    spec = parse_spec("linear")
    assert Grid((spec,)).make_jobs(zeros())[0].specs[0].run_id == "b1a890984dfef4f4"
    other = Grid((spec,), final_only=True, orders=("iid",), classes_per_task=1)
    assert other.make_jobs(zeros())[0].specs[0].run_id == "10a675ec373f8930"


@pytest.mark.parametrize(
    ("settings", "run_id"),
    [
        (
            {"rule": "counts", "pseudocount": "0.02", "class_weight": "balanced",
             "candidate_keys": "all"},
            "f0d2636b2f0441b8",
        ),
        (
            {"rule": "least_squares", "read_temperature": "0.6", "store_samples": "true"},
            "d664e67c160120ba",
        ),
    ],
)  # fmt: skip
def test_runs_of_0_1_with_renamed_parameters_have_the_same_id(settings, run_id):
    linear = Grid((parse_spec("linear"),)).make_jobs(zeros())[0].specs[0].parameters
    spec = RunSpec("any", {**linear, "name": "bottleneck", "settings": settings})
    assert spec.run_id == run_id


def test_the_experiment_field_is_now_all_methods(tmp_path):
    line = (RESULTS / "all-methods" / "records.jsonl").read_text().splitlines()[0]
    folder = tmp_path / "field"
    folder.mkdir()
    (folder / "records.jsonl").write_text(line + "\n")
    assert [group.experiment for group in collect(tmp_path).groups] == ["all-methods"]
    (folder / "summary.json").write_text('{"experiment": "field"}')
    assert read_experiment_name(folder) == "all-methods"
