"""Runs that are killed, cut or repeated: `finish` redoes what is missing and nothing else."""

import errno
import os
import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb._support.files import atomic
from dkvb.benchmark.records import Cell, Job, RunRecord, finish, read_records, write_summary


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
    assert read_records(path).damaged == []
    damaged = [number for number in sorted(lost) if lines[number]]
    kept = folder / "r.jsonl.damaged"
    assert kept.exists() == bool(damaged)
    if damaged:
        assert kept.read_bytes() == b"".join(lines[number] for number in damaged)
    if len(lost) < 6 or damaged:
        assert f"{6 - len(lost)} of 6 runs finished" in said[0]
        assert (f"{len(damaged)} damaged" in said[0]) == bool(damaged)


def with_damage(path):
    """A file of six records, of which two are damaged; its whole lines and its damaged ones."""
    finish(Bench().jobs, path)
    lines = path.read_bytes().splitlines()
    damaged = [lines[1][:50] + b"\xff\x00\r", lines[5][:-9]]
    whole = [lines[0], *lines[2:5]]
    path.write_bytes(b"\n".join([lines[0], damaged[0], *lines[2:5], damaged[1]]))
    return whole, damaged


def test_damaged_lines_are_moved_once_and_named_once(tmp_path):
    path, kept, said = tmp_path / "r.jsonl", tmp_path / "r.jsonl.damaged", []
    whole, damaged = with_damage(path)
    kept.write_bytes(b"of an earlier run, cut")
    finish(Bench().jobs, path, say=said.append)
    assert said.pop() == (
        f"{path}: 4 of 6 runs finished, 2 damaged (line 2, 6); 2 to run; "
        "damaged lines are now in r.jsonl.damaged"
    )
    assert kept.read_bytes() == b"of an earlier run, cut\n" + b"\n".join(damaged) + b"\n"
    assert path.read_bytes().splitlines()[:4] == whole
    before = path.read_bytes(), kept.read_bytes()
    finish(Bench().jobs, path, say=said.append)
    assert said == [f"{path}: 6 of 6 runs finished; 0 to run"]
    assert (path.read_bytes(), kept.read_bytes()) == before


def test_damaged_lines_are_moved_even_if_nothing_is_left_to_run(tmp_path):
    path, said = tmp_path / "r.jsonl", []
    records = finish(Bench().jobs, path)
    content = path.read_bytes()
    path.write_bytes(b"{}\n" + content)
    assert finish(Bench().jobs, path, say=said.append) == records
    assert "6 of 6 runs finished, 1 damaged (line 1); 0 to run; damaged" in said[0]
    assert path.read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", range(1, 12))
def test_death_at_any_step_loses_no_line(tmp_path, number):
    path, kept = tmp_path / "r.jsonl", tmp_path / "r.jsonl.damaged"
    whole, damaged = with_damage(path)
    child = os.fork()
    if child == 0:
        steps = iter(range(1, 100))

        def dying(step):
            def wrapped(first, *more):
                if next(steps) == number:
                    if step is write_all:
                        write_all(first, more[0][: len(more[0]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return step(first, *more)

            return wrapped

        write_all = atomic.write_all
        for name in ("write_all", "sync", "rename", "sync_folder"):
            setattr(atomic, name, dying(getattr(atomic, name)))
        finish(Bench().jobs, path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    # Three steps keep damaged lines, four replace the records, two add each of the two redone.
    assert os.WIFSIGNALED(status)
    left = path.read_bytes().split(b"\n")
    moved = kept.read_bytes().split(b"\n") if kept.exists() else []
    assert set(whole) <= set(left)
    assert set(damaged) <= {*left, *moved}
    records = finish(Bench().jobs, path)
    assert [record.seed for record in records] == list(range(6))
    assert read_records(path).damaged == []
    assert set(damaged) <= set(kept.read_bytes().split(b"\n"))


def test_a_full_disk_leaves_the_old_summary(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_summary(path, {"größer": 1})
    assert path.read_text(encoding="utf-8") == '{\n  "größer": 1\n}\n'

    def full(handle, chunk):
        os.write(handle, chunk[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        write_summary(path, {"größer": 2})
    assert path.read_text(encoding="utf-8") == '{\n  "größer": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


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
