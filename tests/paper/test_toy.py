"""The toy of the paper's Figure 2, with fewer steps and seeds."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dkvb.evaluation.records import RunRecord, read_records
from paper import experiment
from paper.experiments import toy
from paper.experiments._toy_figure import pack, plot, unpack
from paper.source import Bundled

SMALL = toy.Toy(points=60, test_points=200, steps=500, key_batches=100, grid=20)
SEEDS = [3, 4]
BOTTLENECKS = ("bottleneck-1x400", "bottleneck-20x20")
MODELS = ("linear", "mlp", *BOTTLENECKS)


def run(out: Path, seeds: list[int], config: toy.Toy = SMALL) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    setup = experiment.Setup(Bundled(), tuple(seeds), config)
    return experiment.run_experiment("toy", toy.make_jobs(setup), out)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toy")
    (out / "records.jsonl").write_text("of an earlier run\n")
    summary = run(out, SEEDS)
    assert summary == json.loads((out / "summary.json").read_text())
    return out


@pytest.fixture(scope="module")
def records(folder: Path) -> list[RunRecord]:
    return read_records(folder / "records.jsonl").records


def test_the_tasks_are_the_papers() -> None:
    assert [list(task) for task in toy.TASKS] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    x, y = toy.draw_points(0, 4000, np.random.default_rng(0))
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    counts = Counter(y.tolist())
    assert set(counts) == {0, 4}
    assert abs(counts[0] - counts[4]) < 400  # fair coins: six standard deviations
    for label, mean in toy.TASKS[0].items():
        own = x[y == label]
        np.testing.assert_allclose(own.mean(dim=0), mean, atol=0.005)
        np.testing.assert_allclose(own.std(dim=0), [0.035, 0.035], atol=0.003)


def test_who_forgets_and_who_does_not(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())["rows"]
    assert tuple(summary) == MODELS
    for name, row in summary.items():
        assert list(row) == ["accuracy", "before pruning"]
        assert len(row["accuracy"]) == 4
        if name in BOTTLENECKS:
            assert min(row["accuracy"]) >= 0.9
        else:
            assert max(row["accuracy"][:3]) <= 0.3
            assert row["accuracy"][3] >= 0.7  # half the steps: not all of the two classes apart


def test_records_hold_every_model_and_seed(folder: Path, records: list[RunRecord]) -> None:
    assert [(r.classifier, r.seed) for r in records] == [(m, s) for m in MODELS for s in SEEDS]
    summary = json.loads((folder / "summary.json").read_text())["rows"]
    for record in records:
        assert np.shape(record.accuracy_matrix) == (4, 4)
        assert record.accuracy_matrix[0][0] >= 0.7  # before pruning some keys near by are untrained
        assert max(record.accuracy_matrix[0][1:]) <= 0.5  # what comes later is not known yet
        assert {"dkvb", "python", "torch", "numpy"} <= record.versions.keys()
        assert asdict(SMALL).items() <= record.config.items()
        assert ("drawing" in record.extra) == (record.seed == SEEDS[0])
    for name in MODELS:
        own = [r.extra["pruned_accuracy"] for r in records if r.classifier == name]
        np.testing.assert_allclose(np.mean(own, axis=0), summary[name]["accuracy"], atol=1e-5)


def test_pruning_leaves_what_has_nothing_to_prune(records: list[RunRecord]) -> None:
    for record in records:
        before, after = record.accuracy_matrix[-1], record.extra["pruned_accuracy"]
        assert after == before if record.classifier not in BOTTLENECKS else min(after) >= 0.9


def test_drawings_show_learned_regions(records: list[RunRecord]) -> None:
    drawn = [r for r in records if "drawing" in r.extra]
    assert [r.classifier for r in drawn] == list(MODELS)
    for drawing, name in [(r.extra["drawing"], r.classifier) for r in drawn]:
        assert [len(points) for points in drawing["points"]] == [60] * 4
        regions = [*drawing["regions"], drawing["pruned_regions"]]
        cells = [unpack(packed_cells) for packed_cells in regions]
        assert all(c.shape == (20, 20) for c in cells)
        guesses = [int((c >= toy.N_CLASSES).sum()) for c in cells]
        if name in BOTTLENECKS:
            assert guesses[0] > guesses[3]  # every task teaches further pairs
            assert guesses[4] == 0  # every pair that is left was taught
            assert set(cells[4].flat) == set(range(8))
            assert cells[4][5, 5] == 0  # the cell at (0.275, 0.275)
        else:
            assert max(guesses) == 0
        if name == "bottleneck-1x400":
            assert np.shape(drawing["keys"]) == (400, 2)
            assert 0 < len(drawing["pruned_keys"]) < 400
            assert {tuple(k) for k in drawing["pruned_keys"]} <= {tuple(k) for k in drawing["keys"]}
            assert np.min(drawing["keys"]) > -0.01
            assert np.max(drawing["keys"]) < 1.01
        else:
            assert drawing["keys"] == drawing["pruned_keys"] == []


def test_a_seed_gives_the_same_alone_and_in_company(
    records: list[RunRecord], tmp_path: Path
) -> None:
    run(tmp_path, [SEEDS[1]])
    alone = {r.classifier: r for r in read_records(tmp_path / "records.jsonl").records}
    for record in records:
        if record.seed == SEEDS[1]:
            other = alone[record.classifier]
            assert record.accuracy_matrix == other.accuracy_matrix
            assert record.extra["pruned_accuracy"] == other.extra["pruned_accuracy"]


def test_the_figure_is_drawn_from_records_alone(
    folder: Path, records: list[RunRecord], tmp_path: Path
) -> None:
    drawn = plot(records, tmp_path / "again.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert drawn == (folder / "toy.png").read_bytes()
    assert len(drawn) < 200_000
    fewer = plot(records[-2:], tmp_path / "fewer.png").read_bytes()
    assert len(fewer) < len(drawn)


def test_records_without_a_drawing_are_refused(records: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="records: expected at least one with a drawing"):
        plot([replace(record, extra={}) for record in records], tmp_path / "none.png")
    assert not list(tmp_path.iterdir())


def test_regions_survive_packing() -> None:
    square = np.random.default_rng(0).integers(16, size=(7, 7))
    np.testing.assert_array_equal(unpack(pack(square)), square)


def test_random_points_do_as_keys_too(tmp_path: Path) -> None:
    rows = run(tmp_path, [1], replace(SMALL, key_method="sample", steps=100))["rows"]
    assert all(min(rows[name]["accuracy"]) >= 0.9 for name in BOTTLENECKS)
