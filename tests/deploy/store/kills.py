"""Kill processes that change a model, at random: `python -m tests.deploy.store.kills --kills 200`.

A process runs `dkvb learn`, `forget` and `export` one after another until it is killed. After each
kill the model must be what the acknowledged operations make of it, with or without the one that
was under way; what was forgotten must stand in no file; every file must be readable.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkvb import BottleneckClassifier, fit_keys
from dkvb.cli import app
from dkvb.deploy.store import create, folder, read_folder
from dkvb.estimators.registry import make_classifier

RULES: tuple[dict[str, Any], ...] = (
    {"rule": "counts"},
    {"rule": "least_squares", "store_samples": True},
)
ROWS = 6  # of a batch
LONGEST = 0.8  # seconds until a kill

Operation = tuple[str, str]  # "learn", "forget" or "save", and the label that it is about


def batch(label: str) -> tuple[Any, Any]:
    """Rows of one class, always the same for the same label."""
    rng = np.random.default_rng(list(label.encode()))
    return rng.normal(size=(ROWS, 12)).astype(np.float32), np.array([label] * ROWS)


@dataclass
class Trial:
    """One model on disk, and what it must be."""

    path: Path
    settings: dict[str, Any]
    rng: np.random.Generator
    expected: list[str] = field(default_factory=lambda: ["first", "second"])  # labels, learned
    saved: list[list[str]] = field(default_factory=list)  # what the exported file may hold
    number: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        X = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
        self.keys = fit_keys(X, preset="paper", n_codebooks=6, n_pairs=8, key_dim=3, epochs=1)
        self.path.mkdir()
        create(self.path / "model", self.reference(self.expected)).close()
        # Once here, so that children need not import and compile before they come to the disk.
        with open(os.devnull, "w") as nothing, redirect_stdout(nothing):  # noqa: PTH123
            for operation in (("learn", "third"), ("forget", "third"), ("save", "")):
                app(self.arguments(operation), standalone_mode=False)
        self.saved = [list(self.expected)]

    def reference(self, labels: list[str]) -> BottleneckClassifier:
        """What a model that learned these batches and nothing else is."""
        model = make_classifier("bottleneck", {"keys": self.keys, **self.settings})
        rows = [batch(label) for label in labels]
        X, y = (np.concatenate(part) for part in zip(*rows, strict=True))
        return model.fit(X, y)

    def plan(self, labels: list[str]) -> Operation:
        way = self.rng.choice(["learn", "learn", "learn", "forget", "save"])
        if way == "forget" and len(labels) > 2:
            return "forget", labels[int(self.rng.integers(len(labels)))]
        if way == "save":
            return "save", ""
        self.number += 1
        return "learn", f"label-{self.number}-{self.rng.integers(10**9)}"

    def after(self, labels: list[str], operation: Operation) -> list[str]:
        way, label = operation
        if way == "learn":
            return [*labels, label]
        return [other for other in labels if other != label] if way == "forget" else labels

    def arguments(self, operation: Operation) -> list[str]:
        way, label = operation
        model, data = str(self.path / "model"), self.path / "batch.npz"
        if way == "learn":
            X, y = batch(label)
            np.savez(data, x=X, y=y)
            return ["learn", model, "--data", str(data)]
        if way == "forget":
            return ["forget", model, "--label", label]
        return ["export", model, str(self.path / "exported.safetensors")]

    # ------------------------------------------------------------------------------------ killing
    def child(self, pipe: int) -> None:
        """Operations without end; on the pipe, each before and after."""
        os.dup2(pipe, 1)
        sys.stdout = os.fdopen(1, "w")
        labels = list(self.expected)
        while True:
            operation = self.plan(labels)
            os.write(pipe, (json.dumps(["begin", *operation]) + "\n").encode())
            app(self.arguments(operation), standalone_mode=False)  # which prints when it is done
            labels = self.after(labels, operation)

    def kill_one(self) -> None:
        reading, writing = os.pipe()
        self.number += 1000  # labels of one child are never another's
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                self.child(writing)
            finally:
                os._exit(1)
        os.close(writing)
        select.select([reading], [], [])  # until it begins, however busy the machine is
        time.sleep(self.rng.uniform(0, LONGEST))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            told = pipe.read().splitlines()
        if not os.WIFSIGNALED(status):
            raise AssertionError(f"the process ended by itself: {told[-3:]}")
        self.check(told)
        self.rng = np.random.default_rng(self.rng.integers(2**60))

    def check(self, told: list[str]) -> None:
        under_way: Operation | None = None
        for line in told:
            if line.startswith("["):
                _, way, label = json.loads(line)
                under_way = (way, label)
            elif under_way is not None and line.split()[0] in ("learned", "forgot", "wrote"):
                self.expected = self.after(self.expected, under_way)
                if under_way[0] == "save":
                    self.saved = [list(self.expected)]
                elif under_way[0] == "forget":
                    self.forbid(under_way[1])
                self.seen[under_way[0]] += 1
                under_way = None
        possible = [self.expected]
        if under_way is not None:
            self.seen["under way"] += 1
            possible.append(self.after(self.expected, under_way))
            if under_way[0] == "save":
                self.saved.append(list(self.expected))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a record that was cut off
            found = read_folder(self.path / "model")
        self.expected = self.matching(found.classifier, possible)
        rows = sum(e.count * (-1 if e.operation == "forget" else 1) for e in found.history)
        assert rows == ROWS * len(self.expected), "the history does not add up"
        exported = self.path / "exported.safetensors"
        if exported.exists():
            held = self.matching(BottleneckClassifier.load(exported), self.saved)
            self.saved = [held]

    def matching(self, model: Any, possible: list[list[str]]) -> list[str]:
        for labels in possible:
            if sorted(labels) == model.classes_.tolist():
                ours, theirs = self.reference(labels).state_tensors(), model.state_tensors()
                assert all(torch.equal(ours[name], theirs[name]) for name in ours), "other content"
                return labels
        raise AssertionError(f"expected one of {possible}; got {model.classes_.tolist()}")

    def forbid(self, label: str) -> None:
        """No file of the model may hold a label that was forgotten."""
        for path in (self.path / "model").iterdir():
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            assert label.encode() not in content, f"{label} stands in {path.name}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder.MOST_SECONDS = 0.02  # so that journals are often compacted
    start = time.perf_counter()
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        trials = [
            Trial(Path(place) / settings["rule"], settings, np.random.default_rng(options.seed + i))
            for i, settings in enumerate(RULES)
        ]
        for number in range(options.kills):
            trials[number % len(trials)].kill_one()
        left = [p.name for t in trials for p in (t.path / "model").glob(".*.unfinished")]
        for trial in trials:
            seen += trial.seen
    report = {
        "kills": options.kills,
        "seed": options.seed,
        "acknowledged": {way: seen[way] for way in ("learn", "forget", "save")},
        "killed under way": seen["under way"],
        "unfinished files at the end": len(left),
        "seconds": round(time.perf_counter() - start, 1),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
