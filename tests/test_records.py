"""Runs that are killed, cut or repeated: `finish` redoes what is missing and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb.records import Cell, Job, RunRecord, finish, read_records


def record_of(cell: Cell) -> RunRecord:
    value = cell.what["seed"] / 7
    return RunRecord(
        classifier=cell.classifier,
        stream="iid",
        seed=cell.what["seed"],
        classes=[],
        stages=[],
        config={},
        versions={},
        curve=[],
        accuracy_matrix=[],
        metrics={"final_accuracy": value},
        times={},
    )


class Bench:
    """Jobs of two cells each that count how often each cell ran."""

    def __init__(self, n_jobs=3, fail_at=None):
        self.ran, self.fail_at = [], fail_at
        self.jobs = [
            Job([Cell(f"model {2 * j + i}", {"seed": 2 * j + i}) for i in range(2)], self.run)
            for j in range(n_jobs)
        ]

    def run(self, cells, progress):
        for cell in cells:
            if cell.what["seed"] == self.fail_at:
                raise KeyboardInterrupt
            self.ran.append(cell.what["seed"])
            yield cell, record_of(cell)


def test_everything_runs_once_in_order(tmp_path):
    bench, said = Bench(), []
    records = finish(bench.jobs, tmp_path / "r.jsonl", say=said.append)
    assert bench.ran == [0, 1, 2, 3, 4, 5]
    assert [r.seed for r in records] == bench.ran
    assert [r.cell for r in records] == [c.identity for j in bench.jobs for c in j.cells]
    assert said == []  # nothing was there
    again = Bench()
    assert finish(again.jobs, tmp_path / "r.jsonl", say=said.append) == records
    assert again.ran == []
    assert said == [f"{tmp_path / 'r.jsonl'}: 6 of 6 runs finished; 0 to run"]


def test_an_interrupted_run_keeps_what_was_finished(tmp_path):
    path = tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        finish(Bench(fail_at=3).jobs, path)
    rest = Bench()
    records = finish(rest.jobs, path)
    assert rest.ran == [3, 4, 5]
    assert records == finish(Bench().jobs, tmp_path / "whole.jsonl")


@given(st.data())
def test_a_damaged_file_costs_only_the_damaged_cells(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("records")
    path = folder / "r.jsonl"
    whole = finish(Bench().jobs, path)
    lines = path.read_bytes().splitlines(keepends=True)
    lost = data.draw(st.sets(st.integers(0, 5), min_size=1))
    for number in lost:
        cut = data.draw(st.integers(0, len(lines[number]) - 2))
        lines[number] = lines[number][:cut] + b"\n" * bool(cut)
    path.write_bytes(b"".join(lines))
    bench, said = Bench(), []
    assert finish(bench.jobs, path, say=said.append) == whole
    assert bench.ran == sorted(lost)
    assert finish(Bench().jobs, path) == whole
    damaged = [number for number in lost if lines[number]]
    if len(lost) < 6 or damaged:
        assert f"{6 - len(lost)} of 6 runs finished" in said[0]
        assert (f"{len(damaged)} damaged" in said[0]) == bool(damaged)


def test_what_is_known_from_elsewhere_is_not_run_again(tmp_path):
    elsewhere = finish(Bench(n_jobs=1).jobs, tmp_path / "other.jsonl")
    known = {r.cell: replace(r, classifier="called otherwise") for r in elsewhere}
    bench = Bench()
    records = finish(bench.jobs, tmp_path / "r.jsonl", known=known)
    assert bench.ran == [2, 3, 4, 5]
    assert [r.classifier for r in records] == [f"model {i}" for i in range(6)]
    assert len(read_records(tmp_path / "r.jsonl").records) == 6  # a folder stands on its own


def test_other_settings_in_the_file_are_left_alone(tmp_path):
    path, said = tmp_path / "r.jsonl", []
    finish(Bench(n_jobs=1).jobs, path)
    other = Job([Cell("other", {"seed": 9})], Bench().run)
    assert [r.seed for r in finish([other], path, say=said.append)] == [9]
    assert "0 of 1 runs finished, 2 of other settings; 1 to run" in said[0]
    assert len(read_records(path).records) == 3


def test_the_same_cell_in_two_jobs_runs_once(tmp_path):
    bench = Bench(n_jobs=1)
    records = finish([*bench.jobs, *bench.jobs], tmp_path / "r.jsonl")
    assert bench.ran == [0, 1]
    assert [r.seed for r in records] == [0, 1, 0, 1]


def test_identity_is_content():
    a = Cell("a", {"seed": 1, "settings": {"x": 1, "y": 2}})
    assert Cell("b", {"settings": {"y": 2, "x": 1}, "seed": 1}).identity == a.identity
    assert Cell("a", {"seed": 2, "settings": {"x": 1, "y": 2}}).identity != a.identity
    with pytest.raises(ValueError, match="JSON"):
        _ = Cell("a", {"rate": float("nan")}).identity


def test_records_of_before_cells_can_be_read():
    old = record_of(Cell("a", {"seed": 1}))
    line = old.to_json().replace(', "cell": "", "extra": {}', "")
    assert "cell" not in line
    assert RunRecord.from_json(line) == old
