"""A tenth of the spoilt files that `make torture` tries."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")


def report_of(module, files, *more):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.support.files.{module}", "--files", str(files), *more],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    return report


def test_spoilt_files_load_or_say_why_not():
    report = report_of("fuzz", 1000, "--seed", "0")
    assert "loaded" not in report["outcomes"]["bytes"]
    assert report["outcomes"]["bytes"]["damaged"] > 40
    assert report["outcomes"]["facts and tensors"]["damaged"] > 40


def test_other_spoilt_files_are_read_or_refused():
    outcomes = report_of("spoilt", 1000, "--seed", "0")["outcomes"]
    assert outcomes["records"]["read"] > 60  # a damaged line is left out
    assert outcomes["cache"]["read"] > 60  # a damaged shard is made again
    for kind in outcomes.keys() - {"records", "cache"}:
        assert outcomes[kind]["refused"] >= 20, kind
