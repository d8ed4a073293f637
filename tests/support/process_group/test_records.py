"""Records of a job: all processes read them, the first alone changes them."""

from pathlib import Path

from dkvb.evaluation.records import read_records

from .jobs import run

PROGRAM = """
from pathlib import Path
from dkvb._support.files import atomic
from dkvb.evaluation.jobs import RunSpec, Job, run_missing
from dkvb.evaluation.records import RunRecord


def measured(specs, progress):
    for spec in specs:
        seed = spec.parameters["seed"]
        yield spec, RunRecord("model", "iid", seed, [], [], {}, {}, [], [], {}, {})


def work():
    said, changed = [], []
    for name in ("write_all", "rename"):
        def noted(*arguments, real=getattr(atomic, name)):
            changed.append(real.__name__)
            return real(*arguments)
        setattr(atomic, name, noted)
    jobs = [Job([RunSpec("model", {"seed": seed})], measured) for seed in range(4)]
    records = run_missing(jobs, Path(sys.argv[1]) / "records.jsonl", log=said.append)
    return {"said": said, "changed": len(changed), "seeds": [record.seed for record in records]}
"""


def test_the_first_process_alone_moves_damaged_lines(tmp_path: Path) -> None:
    path, kept = tmp_path / "records.jsonl", tmp_path / "records.jsonl.damaged"
    path.write_bytes(b'{"classifier": "mod\n{"cut')
    [first, second] = run(PROGRAM, tmp_path, sizes=(2,))[2]
    assert first["seeds"] == second["seeds"] == [0, 1, 2, 3]
    assert len(first["said"]) == 1
    assert "0 of 4 runs finished, 2 damaged (line 1, 2); 4 to run" in first["said"][0]
    assert second["said"] == []
    assert first["changed"] > 0
    assert second["changed"] == 0
    assert kept.read_bytes() == b'{"classifier": "mod\n{"cut\n'
    assert (len(read_records(path).records), read_records(path).damaged) == (4, [])
