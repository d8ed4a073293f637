"""Some spoilt files; `make torture` tries ten thousand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_spoilt_files_load_or_say_why_not():
    program = [sys.executable, "-m", "tests.support.files.fuzz", "--files", "255"]
    done = subprocess.run(
        program,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert "loaded" not in report["outcomes"]["bytes"]
    assert report["outcomes"]["bytes"]["damaged"] > 40
    assert report["outcomes"]["facts and tensors"]["damaged"] > 40
