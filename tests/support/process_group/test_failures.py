"""A process that dies, hangs or fails ends all others soon, with an error that names it."""

import json
import os
import subprocess
import sys

import pytest

from .jobs import PATIENCE, free_ports, start

PROGRAM = """
import signal
from dkvb._support.process_group import watch

# The same with shorter waits: the real ones add up to less than a minute.
watch.BEAT, watch.SILENCE, watch.GRACE, watch.BROKEN = 0.2, 10.0, 2.0, 3.0


def end(rank, how, then):
    def work():
        process_group.all_reduce(torch.ones(3))
        if process_group.rank() == rank:
            how()
        then()
    return work


def waits():
    process_group.all_reduce(torch.ones(3))


def computes():
    time.sleep(120)


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    if os.fork() == 0:  # the others end by themselves; this one is ended later
        time.sleep(16)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)


def fails():
    raise ValueError("X: expected better rows")


def work(ports):
    at_once({
        "killed, others wait": end(1, dies, waits),
        "killed, others compute": end(1, dies, computes),
        "hangs": end(1, hangs, waits),
        "killed, who holds the store": end(0, dies, waits),
        "fails": end(1, fails, computes),
    }, ports, sys.argv[1])
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ended")
    job = start(PROGRAM, folder, (0,) * 5)
    _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, errors
    return folder


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("killed, others wait", "rank 1 of 3 died or hangs"),
        ("killed, others compute", "rank 1 of 3 died or hangs"),
        ("hangs", "rank 1 of 3 died or hangs"),
        ("killed, who holds the store", "rank 0"),
        ("fails", "rank 1 of 3 stopped: ValueError: X: expected better rows"),
    ],
)
def test_all_end_soon_and_name_who_failed(ending, message, ended):
    found = json.loads((ended / f"{ending}.json").read_text())
    assert all(found["codes"])
    assert found["seconds"] < 60
    assert message in (ended / f"{ending}.txt").read_text()


def test_the_real_waits_add_up_to_less_than_a_minute():
    from dkvb._support.process_group import watch

    assert watch.SILENCE + watch.GRACE + 2 * watch.BEAT < 60
    assert watch.BROKEN + 2 * watch.BEAT < 60


def test_torchrun_ends_too_and_names_the_rank(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import os
import torch
from dkvb._support import process_group

with process_group.init():
    process_group.all_reduce(torch.ones(2))
    if process_group.rank() == 1:
        os.kill(os.getpid(), 9)
    process_group.all_reduce(torch.ones(2))
""")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "--master-port", free_ports(1)[0], str(program)],
        capture_output=True, text=True, timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "rank      : 1 (local_rank: 1)" in done.stderr
    assert "SIGKILL" in done.stderr
