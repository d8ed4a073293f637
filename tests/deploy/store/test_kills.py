"""A few processes killed while they change a model; `make torture` kills two hundred."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_processes_lose_nothing_and_bring_nothing_back():
    program = [sys.executable, "-m", "tests.deploy.store.kills", "--kills", "10"]
    done = subprocess.run(
        program,
        cwd=Path(__file__).parents[3],
        # No threads, so that children can be forked.
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 10
    assert report["killed under way"] > 0
