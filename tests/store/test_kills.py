"""A tenth of the kills of `make torture`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(module, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.store.{module}", *arguments],
        cwd=Path(__file__).parents[2],
        # No threads, so that children can be forked.
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_two_writers_that_are_killed_and_a_reader():
    report = run("contention", "--kills", "20")
    assert report["last said of a label"]["learned"] > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_processes_lose_nothing_and_bring_nothing_back():
    report = run("kills", "--kills", "20")
    assert report["kills"] == 20
    assert report["killed under way"] > 0
