"""Runs that are killed, cut or repeated: `run_missing` redoes what is missing and nothing else."""

import errno
import json
import os
import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb._support.files import atomic
from dkvb.evaluation.jobs import Job, RunSpec, run_missing
from dkvb.evaluation.records import RunRecord, read_records, write_summary


def record_of(spec: RunSpec) -> RunRecord:
    value = spec.parameters["seed"] / 7
    return RunRecord(
        classifier=spec.classifier,
        stream="iid",
        seed=spec.parameters["seed"],
        classes=[],
        tasks=[],
        config={},
        versions={},
        curve=[],
        accuracy_matrix=[],
        metrics={"final_accuracy": value},
        times={},
    )


class Bench:
    """Jobs of two specs each that count how often each spec ran."""

    def __init__(self, n_jobs=3, fail_at=None):
        self.ran, self.fail_at = [], fail_at
        self.jobs = [
            Job([RunSpec(f"model {2 * j + i}", {"seed": 2 * j + i}) for i in range(2)], self.run)
            for j in range(n_jobs)
        ]

    def run(self, specs, progress):
        for spec in specs:
            if spec.parameters["seed"] == self.fail_at:
                raise KeyboardInterrupt
            self.ran.append(spec.parameters["seed"])
            yield spec, record_of(spec)


def test_everything_runs_once_in_order(tmp_path):
    bench, logged = Bench(), []
    records = run_missing(bench.jobs, tmp_path / "r.jsonl", log=logged.append)
    assert bench.ran == [0, 1, 2, 3, 4, 5]
    assert [r.seed for r in records] == bench.ran
    assert [r.run_id for r in records] == [c.run_id for j in bench.jobs for c in j.specs]
    assert logged == []  # nothing was there
    again = Bench()
    assert run_missing(again.jobs, tmp_path / "r.jsonl", log=logged.append) == records
    assert again.ran == []
    assert logged == [f"{tmp_path / 'r.jsonl'}: 6 of 6 runs finished; 0 to run"]


def test_an_interrupted_run_keeps_what_was_finished(tmp_path):
    path = tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_missing(Bench(fail_at=3).jobs, path)
    rest = Bench()
    records = run_missing(rest.jobs, path)
    assert rest.ran == [3, 4, 5]
    assert records == run_missing(Bench().jobs, tmp_path / "whole.jsonl")


@given(st.data())
def test_a_damaged_file_costs_only_the_damaged_cells(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("records")
    path = folder / "r.jsonl"
    whole = run_missing(Bench().jobs, path)
    lines = path.read_bytes().splitlines(keepends=True)
    lost = data.draw(st.sets(st.integers(0, 5), min_size=1))
    for number in lost:
        cut = data.draw(st.integers(0, len(lines[number]) - 2))
        lines[number] = lines[number][:cut] + b"\n" * bool(cut)
    path.write_bytes(b"".join(lines))
    bench, logged = Bench(), []
    assert run_missing(bench.jobs, path, log=logged.append) == whole
    assert bench.ran == sorted(lost)
    assert run_missing(Bench().jobs, path) == whole
    assert read_records(path).damaged == []
    damaged = [number for number in sorted(lost) if lines[number]]
    kept = folder / "r.jsonl.damaged"
    assert kept.exists() == bool(damaged)
    if damaged:
        assert kept.read_bytes() == b"".join(lines[number] for number in damaged)
    if len(lost) < 6 or damaged:
        assert f"{6 - len(lost)} of 6 runs finished" in logged[0]
        assert (f"{len(damaged)} damaged" in logged[0]) == bool(damaged)


def with_damage(path):
    """A file of six records, of which two are damaged; its whole lines and its damaged ones."""
    run_missing(Bench().jobs, path)
    lines = path.read_bytes().splitlines()
    damaged = [lines[1][:50] + b"\xff\x00\r", lines[5][:-9]]
    whole = [lines[0], *lines[2:5]]
    path.write_bytes(b"\n".join([lines[0], damaged[0], *lines[2:5], damaged[1]]))
    return whole, damaged


def test_damaged_lines_are_moved_once_and_named_once(tmp_path):
    path, kept, logged = tmp_path / "r.jsonl", tmp_path / "r.jsonl.damaged", []
    whole, damaged = with_damage(path)
    kept.write_bytes(b"of an earlier run, cut")
    run_missing(Bench().jobs, path, log=logged.append)
    assert logged.pop() == (
        f"{path}: 4 of 6 runs finished, 2 damaged (line 2, 6); 2 to run; "
        "damaged lines are now in r.jsonl.damaged"
    )
    assert kept.read_bytes() == b"of an earlier run, cut\n" + b"\n".join(damaged) + b"\n"
    assert path.read_bytes().splitlines()[:4] == whole
    before = path.read_bytes(), kept.read_bytes()
    run_missing(Bench().jobs, path, log=logged.append)
    assert logged == [f"{path}: 6 of 6 runs finished; 0 to run"]
    assert (path.read_bytes(), kept.read_bytes()) == before


def test_damaged_lines_are_moved_even_if_nothing_is_left_to_run(tmp_path):
    path, logged = tmp_path / "r.jsonl", []
    records = run_missing(Bench().jobs, path)
    content = path.read_bytes()
    path.write_bytes(b"{}\n" + content)
    assert run_missing(Bench().jobs, path, log=logged.append) == records
    assert "6 of 6 runs finished, 1 damaged (line 1); 0 to run; damaged" in logged[0]
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
        run_missing(Bench().jobs, path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    # Three steps keep damaged lines, four replace the records, two add each of the two redone.
    assert os.WIFSIGNALED(status)
    left = path.read_bytes().split(b"\n")
    moved = kept.read_bytes().split(b"\n") if kept.exists() else []
    assert set(whole) <= set(left)
    assert set(damaged) <= {*left, *moved}
    records = run_missing(Bench().jobs, path)
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
    elsewhere = run_missing(Bench(n_jobs=1).jobs, tmp_path / "other.jsonl")
    known = {r.run_id: replace(r, classifier="called otherwise") for r in elsewhere}
    bench = Bench()
    records = run_missing(bench.jobs, tmp_path / "r.jsonl", reusable=known)
    assert bench.ran == [2, 3, 4, 5]
    assert [r.classifier for r in records] == [f"model {i}" for i in range(6)]
    assert len(read_records(tmp_path / "r.jsonl").records) == 6  # a folder stands on its own


def test_other_settings_in_the_file_are_left_alone(tmp_path):
    path, logged = tmp_path / "r.jsonl", []
    run_missing(Bench(n_jobs=1).jobs, path)
    other = Job([RunSpec("other", {"seed": 9})], Bench().run)
    assert [r.seed for r in run_missing([other], path, log=logged.append)] == [9]
    assert "0 of 1 runs finished, 2 of other settings; 1 to run" in logged[0]
    assert len(read_records(path).records) == 3


def test_the_same_cell_in_two_jobs_runs_once(tmp_path):
    bench = Bench(n_jobs=1)
    records = run_missing([*bench.jobs, *bench.jobs], tmp_path / "r.jsonl")
    assert bench.ran == [0, 1]
    assert [r.seed for r in records] == [0, 1, 0, 1]


def test_identity_is_content():
    a = RunSpec("a", {"seed": 1, "settings": {"x": 1, "y": 2}})
    assert RunSpec("b", {"settings": {"y": 2, "x": 1}, "seed": 1}).run_id == a.run_id
    assert RunSpec("a", {"seed": 2, "settings": {"x": 1, "y": 2}}).run_id != a.run_id
    with pytest.raises(ValueError, match="JSON"):
        _ = RunSpec("a", {"rate": float("nan")}).run_id


def test_records_of_before_cells_can_be_read():
    old = record_of(RunSpec("a", {"seed": 1}))
    line = old.to_json().replace(', "spec": "", "extra": {}', "")
    assert "spec" not in line
    assert RunRecord.from_json(line) == old


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e308, 10**30, True, "0.5", [0.5]])
def test_numbers_of_which_no_mean_can_be_taken_are_damage(odd):
    whole = json.loads(record_of(RunSpec("a", {"seed": 1})).to_json())
    for place in ("metrics", "times"):
        with pytest.raises(ValueError, match="expected a whole run record"):
            RunRecord.from_json(json.dumps(whole | {place: {"learn": odd}}))
    point = {"task": 0, "epoch": None, "accuracy": 1.0, "per_class": [], "test_loss": None}
    spoilt = whole | {"classes": [], "tasks": [[]], "curve": [point | {"train_loss": odd}]}
    with pytest.raises(ValueError, match="expected a whole run record"):
        RunRecord.from_json(json.dumps(spoilt))
