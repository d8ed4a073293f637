"""A process that fails is named: by its error, by torchrun, or by the backend's timeout."""

import json
import os
import subprocess
import sys
import time

import pytest

from .jobs import PATIENCE, free_ports, start

PROGRAM = """
import signal
from datetime import timedelta

joined = process_group.init
process_group.init = lambda: joined(timedelta(seconds=8))  # instead of half an hour


def end(rank, how):
    def work():
        process_group.all_reduce(torch.ones(3))
        if process_group.rank() == rank:
            how()
        process_group.all_reduce(torch.ones(3))
    return work


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    time.sleep(18)


def fails():
    raise ValueError("X: expected better rows")


def work(ports):
    at_once({
        "killed": end(1, dies),
        "killed, who holds the store": end(0, dies),
        "hangs": end(1, hangs),
        "fails": end(1, fails),
    }, ports, sys.argv[1])
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ended")
    job = start(PROGRAM, folder, (0,) * 4)
    _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, errors
    return folder


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("killed", "another process of 3 died, hangs or lost its connection"),
        ("killed, who holds the store", "another process of 3 died, hangs or lost its connection"),
        ("hangs", "another process of 3 died, hangs or lost its connection"),
        ("fails", "RankLostError: rank 1 of 3 stopped: ValueError: X: expected better rows"),
    ],
)
def test_those_that_wait_end_with_the_reason(ending, message, ended):
    found = json.loads((ended / f"{ending}.json").read_text())
    assert all(found["codes"])
    assert found["seconds"] < 60
    assert message in (ended / f"{ending}.txt").read_text()


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "raise ValueError('no rows')"])
def test_torchrun_ends_those_that_compute_and_names_the_rank(tmp_path, ending):
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, time
import torch
from dkvb._support import process_group

with process_group.init():
    process_group.all_reduce(torch.ones(2))
    if process_group.rank() == 1:
        {ending}
    time.sleep(300)
""")
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "--master-port", free_ports(1)[0], str(program)],
        capture_output=True, text=True, timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "rank      : 1 (local_rank: 1)" in done.stderr
    assert time.monotonic() - begun < 200
