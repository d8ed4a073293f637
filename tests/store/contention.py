"""Two writers and a reader of one model, the writers killed at random:
`python -m tests.store.contention --kills 100`.

Each writer learns batches of its own classes and forgets some of them. A label is written to a pipe
before and after each operation. What was acknowledged is there once, what was forgotten is in no
file, and the reader never fails and never sees half a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkvb.store import create, folder, open_folder, read_folder

from ..support.files.models import rows
from .faults import reference, same
from .shared import class_counts

NAMES = ("kernel", "bottleneck")
ROWS = 3  # of a batch
SAID = ("begin learn", "learned", "begin forget", "forgot")


def batch(label: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(list(label.encode()))
    return rng.normal(size=(ROWS, 6)).astype(np.float32), [label] * ROWS


def write(path: Path, name: str, pipe: int, own: str) -> None:
    """Learn and forget without end."""
    known: list[str] = []
    number = 0
    while True:
        number += 1
        label = f"{own}-{number:06}"
        with open_folder(path, wait=60) as model:
            os.write(pipe, f"0 {label}\n".encode())
            model.learn(*batch(label))
            os.write(pipe, f"1 {label}\n".encode())
            known.append(label)
            if len(known) > 3 and name != "bottleneck":  # which cannot forget
                gone = known.pop(1)
                os.write(pipe, f"2 {gone}\n".encode())
                model.forget(gone)
                os.write(pipe, f"3 {gone}\n".encode())


def read(path: Path) -> None:
    """Read without end; every class is there as a whole."""
    while True:
        counts = class_counts(read_folder(path).classifier)
        if any(count not in (ROWS, 15) for count in counts.values()):
            os._exit(3)


def fork(work: Any, *arguments: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            warnings.simplefilter("ignore")  # a record that was cut off
            work(*arguments)
        finally:
            os._exit(2)
    return child


class Contention:
    """A model, its processes, and what they said."""

    def __init__(self, path: Path, name: str) -> None:
        X, y = rows()
        self.base = (X, y)
        self.path, self.name = path, name
        create(path, reference(name, self.base)).close()
        with open_folder(path) as model:  # so that children need not compile
            model.learn(*batch("first"))
            if name != "bottleneck":
                model.forget("first")
        self.said: dict[str, str] = {}
        self.pipes: dict[str, int] = {}
        self.writers: dict[str, int] = {}
        self.started = 0
        self.reader = fork(read, path)

    def start(self) -> None:
        self.started += 1
        own = f"label-{self.started}-{os.urandom(4).hex()}"
        reading, writing = os.pipe()
        self.writers[own] = fork(write, self.path, self.name, writing, own)
        self.pipes[own] = reading
        os.close(writing)

    def kill(self, own: str) -> None:
        child = self.writers.pop(own)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(self.pipes.pop(own)) as pipe:
            for line in pipe.read().splitlines():
                kind, _, label = line.partition(" ")
                self.said[label] = SAID[int(kind)]
        assert os.WIFSIGNALED(status), f"a writer ended by itself, {status}"

    def stop(self) -> None:
        for own in list(self.writers):
            self.kill(own)
        assert os.waitpid(self.reader, os.WNOHANG) == (0, 0), "the reader failed"
        os.kill(self.reader, signal.SIGKILL)
        os.waitpid(self.reader, 0)

    def check(self) -> Counter[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            open_folder(self.path).close()  # which removes what killed processes left
        counts = class_counts(read_folder(self.path).classifier)
        for label, said in self.said.items():
            assert counts.get(label, 0) in (0, ROWS), f"{label} counts {counts[label]}"
            if said == "learned":
                assert label in counts, f"{label} was acknowledged and is lost"
            if said == "forgot":
                assert label not in counts, f"{label} was forgotten and is there"
                for path in self.path.iterdir():
                    assert label.encode() not in path.read_bytes(), f"{label} in {path.name}"
        present = [label for label in counts if label.startswith("label-")]
        if self.name != "bottleneck":  # whose values depend on the order
            expected = reference(self.name, self.base, *map(batch, present))
            assert same(read_folder(self.path).classifier, expected), "other content"
        left = [path.name for path in self.path.glob(".*.unfinished")]
        assert not left, left
        return Counter(self.said.values())


def contend(name: str, kills: int, seed: int, longest: float = 0.25) -> Counter[str]:
    """Kill so many writers; how often each thing was the last that was said of a label."""
    rng = np.random.default_rng(seed)
    folder.MOST_SECONDS = 0.02  # so that journals are often compacted
    with tempfile.TemporaryDirectory() as place:
        contention = Contention(Path(place) / "model", name)
        try:
            for _ in range(kills):
                while len(contention.writers) < 2:
                    contention.start()
                time.sleep(rng.uniform(0.01, longest))
                contention.kill(str(rng.choice(list(contention.writers))))
        finally:
            contention.stop()
        return contention.check()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    names, said = options.names.split(","), Counter[str]()
    for i, name in enumerate(names):
        kills = (options.kills + len(names) - 1 - i) // len(names)
        said += contend(name, kills, options.seed + i)
    report = {"kills": options.kills, "seed": options.seed, "last said of a label": dict(said)}
    report["seconds"] = round(time.perf_counter() - start, 1)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
