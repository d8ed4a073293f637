"""`python -m paper`: what it prints, and what it refuses."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from dkvb.evaluation.records import read_records
from paper.__main__ import app
from paper.experiments import EXPERIMENTS
from paper.report import build
from paper.report.sentences import BEGIN, END

SIZES = ("n_codebooks=8", "n_pairs=16", "epochs=2", "key_epochs=1")
SMALL = [word for size in SIZES for word in ("--set", size)]


def paper(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(out, *more):
    return paper("run", "granularity", "--quick", "--out", out, *SMALL, *more)


def test_the_list_has_every_experiment_and_its_status():
    listed = paper("list", "--json")
    assert listed.exit_code == 0, listed.output
    told = json.loads(listed.stdout)
    assert list(told) == list(EXPERIMENTS)
    assert told["pairs"]["status"] == "measured at full length on resnet50 (seeds 1–5)"
    assert told["imagenet"]["status"].startswith("measured on synthetic embeddings")
    assert [line.split()[0] for line in paper("list").stdout.splitlines()[::2]] == list(EXPERIMENTS)


def test_an_experiment_is_run_once(tmp_path):
    out = tmp_path / "out"
    first = run(out)
    assert first.exit_code == 0, first.output
    assert "5 tasks of 2" in first.stdout
    assert "granularity: changed run, decides nothing: " in first.stdout
    assert first.stderr == ""
    assert {p.name for p in out.iterdir()} == {"granularity.png", "records.jsonl", "summary.json"}
    again = run(out)
    assert again.stdout == first.stdout
    assert again.stderr == f"{out / 'records.jsonl'}: 4 of 4 runs finished; 0 to run\n"
    redrawn = paper("run", "granularity", "--plot-only", "--out", out, "--json", "--quiet")
    assert json.loads(redrawn.stdout) == json.loads((out / "summary.json").read_text())


def test_several_experiments_share_what_they_can(tmp_path):
    both = ("granularity", "label-smoothing")
    result = paper("run", *both, "--quick", "--out", tmp_path, "--quiet", *SMALL)
    assert (result.exit_code, result.output) == (0, "")
    records = [read_records(tmp_path / name / "records.jsonl").records for name in both]
    shared = {r.run_id for r in records[0]} & {r.run_id for r in records[1]}
    assert len(shared) == 1


# The command, which waits in the middle of the third record for its end, however fast it runs.
_SLOW_TO_WRITE = """
import time
from dkvb.evaluation import jobs, records
from paper.__main__ import app

append = records.append_record

def append_two(path, record):
    if path.exists() and path.read_bytes().count(b"\\n") == 2:
        with path.open("ab") as file:
            file.write(record.to_json().encode()[:100])
        time.sleep(900)
    append(path, record)

jobs.append_record = append_two
app()
"""


def test_a_killed_command_continues(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    seeds = ("--seeds", "1,2")
    assert run(whole, *seeds).exit_code == 0
    command = [sys.executable, "-c", _SLOW_TO_WRITE, "run", "granularity", "--quick"]
    running = subprocess.Popen(
        [*command, *SMALL, *seeds, "--out", killed], stdout=subprocess.DEVNULL
    )
    path = killed / "records.jsonl"
    try:
        while not (path.exists() and re.fullmatch(rb"(.+\n){2}.+", path.read_bytes())):
            assert running.poll() is None
            time.sleep(0.01)
    finally:
        running.kill()
        running.wait()
    done = run(killed, *seeds)
    assert "2 of 8 runs finished, 1 damaged (line 3); 6 to run" in done.stderr
    ours, theirs = (
        {r.run_id: replace(r, times={}) for r in read_records(folder / "records.jsonl").records}
        for folder in (killed, whole)
    )
    assert ours == theirs
    assert len(ours) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonesuch"], "NAME: expected one of 'toy'"),
        (["pairs", "--quick", "--seeds", "one"], "--seeds: expected"),
        (["pairs", "--quick", "--set", "epochs"], "--set: expected FIELD=VALUE; got 'epochs'"),
        (["pairs", "--quick", "--set", "speed=1"], "--set: expected one of n_codebooks"),
        (
            ["pairs", "--quick", "--set", "epochs=1", "--set", "epochs=2"],
            "--set epochs: expected once; got it 2 times",
        ),
        (["pairs", "--plot-only", "--seeds", "2"], "--plot-only: expected neither --set nor"),
        (["pairs", "--plot-only"], "expected a folder with records.jsonl"),
        (["pairs", "--data", "gone"], "cifar10-resnet50-train.npz"),
        (["pairs", "--quick", "--only", "linear"], "--only: expected a beginning of bottleneck"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message, tmp_path):
    refused = paper("run", *arguments, "--out", tmp_path / "out")
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out").exists()


def test_the_page_and_the_paragraph_of_the_readme(tmp_path):
    toy = ["toy", "--quick", "--set", "steps=2", "--set", "key_batches=20"]
    assert paper("run", *toy, "--out", tmp_path / "runs" / "toy", "--quiet").exit_code == 0
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n", encoding="utf-8")
    page = ["report", tmp_path / "runs", "--out", tmp_path / "new" / "page.md"]
    done = paper(*page, "--readme", readme)
    assert done.exit_code == 0, done.output
    sentences = build(tmp_path / "runs").sentences
    text = f"# Title\n\n{BEGIN}\n{sentences}\n{END}\n\nThe end.\n"
    assert readme.read_text(encoding="utf-8") == text
    assert sentences in (tmp_path / "new" / "page.md").read_text(encoding="utf-8")
    assert done.stdout == f"{sentences}\npage: {tmp_path / 'new' / 'page.md'}\n"
    assert paper("report", tmp_path / "runs", "--quiet").stdout == ""
    assert (tmp_path / "runs" / "report.md").exists()
    told = json.loads(paper(*page, "--json").stdout)
    assert {claim["verdict"] for claim in told["claims"]} <= {
        "not attempted",
        "cannot be measured here",
    }
    readme.write_text("no marks")
    refused = paper(*page, "--readme", readme)
    assert (refused.exit_code, "--readme: expected the lines" in refused.stderr) == (2, True)
    refused = paper("report", tmp_path / "runs", "--out", "page.html")
    assert (refused.exit_code, "--out: expected a file" in refused.stderr) == (2, True)
