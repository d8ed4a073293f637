"""What the service takes before anybody asks anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from .shared import process
from .torture import resident

MOST_MEGABYTES = 300
MOST_SECONDS = 10


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_and_time_to_be_ready_with_an_encoder(tmp_path):
    code = "import os, torch; print(open('/proc/self/statm').read().split()[1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    torch_alone = int(done.stdout) * 4096 / 1e6
    with process(tmp_path / "m", "--encoder", "efficientnet_lite0") as (_, child):
        times = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        seconds = sum(map(int, times)) / 100  # of a processor: others may use this machine, too
        assert resident(child.pid) - torch_alone < MOST_MEGABYTES
        assert seconds < MOST_SECONDS
