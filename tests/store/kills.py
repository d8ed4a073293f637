"""Kill processes that change a model, at random: `python -m tests.store.kills --kills 200`.

A process runs commands one after another until it is killed: `dkvb learn`, `forget`, `merge`,
`export`, and now and then `fit --overwrite`. After each kill the model must be what the
acknowledged commands make of it, with or without the one that was under way; what was forgotten
must stand in no file; every file must be readable. Every classifier takes its turn.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

import dkvb
from dkvb import fit_keys
from dkvb.cli import app
from dkvb.estimators.registry import make_classifier
from dkvb.store import create, folder, read_folder

from .faults import same

CLASSIFIERS = {
    "kernel": "kernel",
    "bottleneck": "bottleneck:epochs=2",
}
ALWAYS = ("learn", "learn", "learn", "compact", "save", "overwrite")
MORE = {  # what a classifier can do besides
    "kernel": ("forget", "forget", "forget data", "merge"),
    "bottleneck": (),
}
FIRST = ("first", "second")  # labels of a new model
ROWS = 6  # of a batch
LONGEST = 0.6  # seconds until a kill
COMMAND = typer.main.get_command(app)  # built once

Operation = tuple[str, str]  # what is done, and the label that it is about


def batch(label: str) -> tuple[Any, Any]:
    """Rows of one class, always the same for the same label."""
    rng = np.random.default_rng(list(label.encode()))
    return rng.normal(size=(ROWS, 12)).astype(np.float32), np.array([label] * ROWS)


def batches(labels: list[str]) -> tuple[Any, Any]:
    X, y = (np.concatenate(part) for part in zip(*map(batch, labels), strict=True))
    return X, y


@dataclass
class Trial:
    """One model on disk, and what it must be."""

    path: Path
    name: str
    rng: np.random.Generator
    expected: list[str] = field(default_factory=lambda: list(FIRST))  # labels, as learned
    saved: list[list[str]] = field(default_factory=list)  # what the exported file may hold
    number: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        X = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
        self.path.mkdir()
        self.errors = self.path / "stderr"
        self.keys = None
        if self.name != "kernel":
            self.keys = fit_keys(X, preset="paper", n_codebooks=6, n_pairs=8, key_dim=3, epochs=1)
            self.keys.save(self.path / "keys")
        # Once here, so that children need not import and compile before they come to the disk.
        create(self.path / "model", self.reference(self.expected)).close()
        with (
            Path(os.devnull).open("w") as nothing,
            redirect_stdout(nothing),
            redirect_stderr(nothing),
        ):
            for way in dict.fromkeys((*ALWAYS, "learn", *MORE[self.name])):
                label = "second" if way == "forget data" else "first"
                assert COMMAND(self.arguments((way, label)), standalone_mode=False) is None, way
            COMMAND(self.arguments(("overwrite", "")), standalone_mode=False)
        (self.path / "exported.safetensors").unlink()

    def reference(self, labels: list[str]) -> Any:
        """What a model that learned these batches and nothing else is."""
        spec, _, settings = CLASSIFIERS[self.name].partition(":")
        given = {} if self.keys is None else {"keys": self.keys}
        for pair in filter(None, settings.split(",")):
            key, value = pair.split("=")
            given[key] = {"true": True}.get(value, int(value) if value.isdecimal() else value)
        model = make_classifier(spec, given, seed=0).fit(*batches(labels[: len(FIRST)]))
        for label in labels[len(FIRST) :]:
            model.partial_fit(*batch(label))
        return model

    def plan(self, labels: list[str]) -> Operation:
        way = str(self.rng.choice([*ALWAYS, *MORE[self.name]]))
        if way.startswith("forget"):
            if len(labels) > len(FIRST):
                return way, labels[int(self.rng.integers(len(FIRST), len(labels)))]
            way = "learn"
        if way in ("save", "overwrite"):
            return way, ""
        self.number += 1
        return way, f"label-{self.number}-{self.rng.integers(10**9)}"

    def after(self, labels: list[str], operation: Operation) -> list[str]:
        way, label = operation
        if way == "overwrite":
            return list(FIRST)
        if way in ("learn", "compact", "merge"):
            return [*labels, label]
        return [one for one in labels if one != label] if way.startswith("forget") else labels

    def arguments(self, operation: Operation) -> list[str]:
        way, label = operation
        model, data = str(self.path / "model"), self.path / "batch.npz"
        if way in ("learn", "compact", "forget data"):
            X, y = batch(label)
            np.savez(data, x=X, y=y)
            if way == "forget data":
                return ["forget", model, "--data", str(data)]
            return ["learn", model, "--data", str(data), *(["--compact"] * (way == "compact"))]
        if way == "forget":
            return ["forget", model, "--label", label]
        if way == "merge":
            other = self.path / "other"
            shutil.rmtree(other, ignore_errors=True)
            create(other, self.reference([label])).close()
            return ["merge", model, str(other)]
        if way == "overwrite":
            X, y = batches(list(FIRST))
            np.savez(data, x=X, y=y)
            keys = [] if self.keys is None else ["--keys", str(self.path / "keys")]
            return [
                *("fit", model, "--data", str(data), "--overwrite"),
                *("--classifier", CLASSIFIERS[self.name], *keys),
            ]
        return ["export", model, str(self.path / "exported.safetensors")]

    # ------------------------------------------------------------------------------------ killing
    def child(self, pipe: int) -> None:
        """Commands without end; on the pipe, each before and after."""
        os.dup2(pipe, 1)
        sys.stdout = os.fdopen(1, "w")
        sys.stderr = self.errors.open("w")
        labels = list(self.expected)
        while True:
            operation = self.plan(labels)
            arguments = self.arguments(operation)
            os.write(pipe, (json.dumps(["begin", *operation]) + "\n").encode())
            COMMAND(arguments, standalone_mode=False)  # which prints when it is done
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
            raise AssertionError(
                f"{self.name}: the process ended by itself: {told[-3:]} {self.errors.read_text()}"
            )
        self.check(told)
        self.rng = np.random.default_rng(self.rng.integers(2**60))

    def check(self, told: list[str]) -> None:
        under_way: Operation | None = None
        for line in told:
            if line.startswith("["):
                _, way, label = json.loads(line)
                under_way = (way, label)
            elif under_way is not None and line.split()[0] in _ACKNOWLEDGED:
                self.expected = self.after(self.expected, under_way)
                if under_way[0] == "save":
                    self.saved = [list(self.expected)]
                elif under_way[0].startswith("forget"):
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
        rows = sum(e.count * (-1 if "forget" in e.operation else 1) for e in found.history)
        assert rows == ROWS * len(self.expected), f"{self.name}: the history does not add up"
        exported = self.path / "exported.safetensors"
        if exported.exists():
            self.saved = [self.matching(dkvb.load(exported), self.saved)]

    def matching(self, model: Any, possible: list[list[str]]) -> list[str]:
        for labels in possible:
            if sorted(labels) == model.classes_.tolist():
                assert same(model, self.reference(labels)), f"{self.name}: other content"
                return labels
        raise AssertionError(
            f"{self.name}: expected one of {possible}; got {model.classes_.tolist()}"
        )

    def forbid(self, label: str) -> None:
        """No file of the model may hold a label that was forgotten."""
        for path in (self.path / "model").iterdir():
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            assert label.encode() not in content, f"{label} stands in {path.name}"


_ACKNOWLEDGED = ("learned", "forgot", "added", "wrote")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--names", default=",".join(CLASSIFIERS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder.MOST_SECONDS = 0.02  # so that journals are often compacted
    start = time.perf_counter()
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        trials = [
            Trial(Path(place) / name, name, np.random.default_rng([options.seed, i]))
            for i, name in enumerate(options.names.split(","))
        ]
        for number in range(options.kills):
            trials[number % len(trials)].kill_one()
        left = [p.name for t in trials for p in (t.path / "model").glob(".*.unfinished")]
        for trial in trials:
            seen += trial.seen
    under_way = seen.pop("under way", 0)
    report = {
        "kills": options.kills,
        "seed": options.seed,
        "acknowledged": dict(seen),
        "killed under way": under_way,
        "unfinished files at the end": len(left),
        "seconds": round(time.perf_counter() - start, 1),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
