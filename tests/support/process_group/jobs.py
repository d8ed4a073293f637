"""Jobs of several processes for the tests: one interpreter imports everything, then forks.

Importing torch takes seconds, forking milliseconds. Each process writes what it found to a file.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import torch

PROLOGUE = """
import json, os, sys, time
import numpy as np, torch
torch.set_num_threads(1)
from dkvb._support import process_group
"""

EPILOGUE = """
def start(size, port, out):
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            )
            code = 1
            try:
                with process_group.init():
                    found = work()
                torch.save(found, f"{out}/{size}-{rank}.pt")
                code = 0
            except BaseException as error:
                sys.stderr.write(f"[{rank}] {type(error).__name__}: {error}\\n")
                import traceback; traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]

def at_once(works, ports, out, size=3):
    # Several jobs side by side, each with errors and exit codes in files of its own.
    for (name, its_work), port in zip(works.items(), ports):
        if os.fork() == 0:
            os.dup2(os.open(f"{out}/{name}.txt", os.O_WRONLY | os.O_CREAT), 2)
            globals()["work"] = its_work
            begun = time.monotonic()
            codes = start(size, port, out)
            seconds = time.monotonic() - begun
            with open(f"{out}/{name}.json", "w") as file:
                json.dump({"codes": codes, "seconds": seconds}, file)
            os._exit(0)
    for _ in works:
        os.wait()

for size, port in zip(sys.argv[2].split(","), sys.argv[3].split(",")):
    if size == "0":  # work() starts jobs by itself
        work(sys.argv[3].split(","))
        break
    codes = start(int(size), port, sys.argv[1])
    if any(codes):
        sys.exit(f"{size} processes ended with {codes}")
"""


# Seconds after which a job counts as hung; a busy machine may take most of them.
PATIENCE = 900


def free_ports(count: int) -> list[str]:
    """Ports that nobody else gets while this process lives, though the job comes to them later.

    Sockets stay bound to them and never listen. The job's own, which reuses addresses as these do,
    may listen beside them; the system gives such a port to no connection, and to nobody who asks
    for any port.
    """
    ports = []
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        ports.append(str(one.getsockname()[1]))
        one.detach()  # open until this process ends
    return ports


def start(program: str, folder: Path, sizes: tuple[int, ...]) -> subprocess.Popen[str]:
    """Run `program`, which defines work(), in jobs of each size, one after the other."""
    source = folder / "job.py"
    source.write_text(PROLOGUE + textwrap.dedent(program) + EPILOGUE)
    arguments = [str(folder), ",".join(map(str, sizes)), ",".join(free_ports(len(sizes)))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [sys.executable, str(source), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(program: str, folder: Path, sizes: tuple[int, ...] = (1, 2, 4)) -> dict[int, list[Any]]:
    """For each size, what work() returned in each process."""
    job = start(program, folder, sizes)
    _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, errors
    return {
        size: [torch.load(folder / f"{size}-{rank}.pt") for rank in range(size)] for size in sizes
    }
