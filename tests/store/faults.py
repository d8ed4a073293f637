"""Errors, interrupts and kills at every system call: `python -m tests.store.faults`.

Each operation on a model runs once to count its system calls. Then it runs again on a fresh copy
for each of them, and there meets an error, an interrupt or a kill, before the call or after it.
Whatever happens: the model is the one before or the one after, memory equals disk, an error says
which, and repeating the operation with its id counts it once and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from dkvb.estimators.registry import make_classifier
from dkvb.store import AppliedError, create, folder, open_folder, read_folder
from dkvb.store.history import UNLEARNING

from ..support.files.models import rows
from .shared import learned

CHANGING = ("open", "write", "fsync", "replace", "unlink", "ftruncate", "fchmod", "chmod", "mkdir")
READING = ("read", "pread", "lseek", "close", "stat", "lstat", "fstat", "listdir")
NAMES = ("kernel", "bottleneck", "prototypes")
ERRORS = ("error", "interrupt")
X, Y = rows()
SECRET = ["secret-word"] * 3
ID = "operation-17"


class Fault:
    """Something that happens at one system call."""

    def __init__(self, number: int | None, way: str = "error", after: bool = False) -> None:
        self.number, self.way, self.after = number, way, after
        self.calls: list[str] = []  # names of the system calls so far

    def strike(self) -> None:
        if self.way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "interrupt":
            raise KeyboardInterrupt
        raise OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def armed(self) -> Iterator[None]:
        with mock.patch.multiple(os, **{name: self._struck(name) for name in CHANGING + READING}):
            yield

    def _struck(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name) if name != "fsync" else _nothing  # nobody pulls the plug here

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            struck = len(self.calls) == self.number
            if struck and not self.after:
                if name == "close":  # which frees the handle whatever it returns
                    real(*arguments)
                self.strike()
            result = real(*arguments, **named)
            if struck:
                if name == "open":
                    os.close(result)
                self.strike()
            return result

        return call


def _nothing(handle: int) -> None:
    """In the place of fsync."""


# ------------------------------------------------------------------------------------- operations
def reference(name: str, *batches: Any) -> Any:
    if name in ("prototypes", "kernel"):
        model = make_classifier(name)
        for batch in batches:
            model.partial_fit(*batch)
        return model
    return learned(name, *batches)


@cache
def model_before(name: str) -> Any:
    return reference(name, *BEFORE)


def template(place: Path, name: str, operation: str) -> Path:
    """The folder that an operation starts from, made once: with a journal unless there is none."""
    first = operation == "first learn"
    path = place / f"{name}-{'snapshot' if first else 'journal'}"
    if not path.exists():
        with create(path, reference(name, *(BEFORE if first else BEFORE[:1]))) as model:
            if not first:
                model.learn(*BEFORE[1])
    return path


@cache
def replacement() -> Any:
    return make_classifier("bottleneck", {"n_codebooks": 3, "key_dim": 2}).fit(X, Y)


BEFORE = ((X, Y), (X[:3], SECRET))
NEW = (X[3:5], ["elk"] * 2)


LEARNING = ("learn", "first learn", "learn and compact", "close")


def change(model: Any, operation: str, name: str) -> None:
    if operation in LEARNING:
        model.learn(*NEW, operation_id=ID)
        if operation == "close":
            model.close()
    elif operation == "relabel":
        model.relabel(X[:3], SECRET, ["elk"] * 3, operation_id=ID)
    elif operation == "rename":
        model.rename("secret-word", "elk", operation_id=ID)
    elif operation == "merge_classes":
        model.merge_classes(["bee", "cow"], "bee", operation_id=ID)
    elif operation == "undo":
        model.undo(operation_id=ID)
    elif operation == "forget":
        model.forget("secret-word", "bee", operation_id=ID)
    elif operation == "forget_samples":
        model.forget_samples(X[:3], SECRET, operation_id=ID)
    elif operation == "merge":
        model.merge(reference(name, (X[:9], Y[:9])), operation_id=ID)
    else:
        model.compact()


def expected(operation: str, name: str) -> Any:
    """What the operation makes of the model."""
    if operation == "overwrite":
        return replacement()
    if operation in ("fit", "compact"):
        return model_before(name)
    if operation in LEARNING:
        return reference(name, *BEFORE, NEW)
    if operation == "merge":
        return reference(name, *BEFORE, (X[:9], Y[:9]))
    if operation == "undo":
        return reference(name, *BEFORE[:1])
    model = reference(name, *BEFORE)
    if operation == "forget":
        model.forget("secret-word").forget("bee")
    if operation == "forget_samples":
        model.forget_samples(X[:3], SECRET)
    if operation == "relabel":
        model.relabel(X[:3], SECRET, ["elk"] * 3)
    if operation == "rename":
        model.rename("secret-word", "elk")
    if operation == "merge_classes":
        model.merge_classes(["bee", "cow"], "bee")
    return model


def operations(name: str) -> list[str]:
    kept = ["fit", "overwrite", "first learn", "learn", "learn and compact", "compact"]
    if name != "kernel":  # which alone keeps a journal
        return kept
    kept += ["close", "merge", "forget_samples", "relabel", "rename"]
    return [*kept, "forget", "merge_classes", "undo"]


def same(one: Any, other: Any) -> bool:
    """Whether two models have learned the same, to the last bit."""
    if type(one) is not type(other) or one.classes_.tolist() != other.classes_.tolist():
        return False
    if hasattr(one, "state_arrays"):
        ours, theirs = one.state_arrays(), other.state_arrays()
        return ours.keys() == theirs.keys() and all(
            np.array_equal(tensor, theirs[key]) for key, tensor in ours.items()
        )
    return np.array_equal(one.decision_function(X), other.decision_function(X))


class Attack:
    """One operation of one classifier, and the model it is tried on."""

    def __init__(self, place: Path, name: str, operation: str) -> None:
        self.name, self.operation, self.path = name, operation, place / "model"
        self.template = None if operation == "fit" else template(place, name, operation)
        self.before = None if operation == "fit" else model_before(name)
        self.after = expected(operation, name)
        counter = Fault(None)
        self.try_once(counter)
        self.calls = counter.calls

    def fresh(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self.template is not None:
            shutil.copytree(self.template, self.path)

    def perform(self, model: Any = None) -> None:
        """The operation, from opening to closing unless a model is open."""
        if model is not None:
            return change(model, self.operation, self.name)
        if self.operation in ("fit", "overwrite"):
            create(self.path, self.after, overwrite=self.operation == "overwrite").close()
            return None
        with open_folder(self.path) as model:
            return change(model, self.operation, self.name)

    def try_once(self, fault: Fault) -> None:
        self.fresh()
        with _compacting(self.operation == "learn and compact"):
            if fault.way == "kill":
                self.kill(fault)
                self.check_disk()
            elif self.operation in ("fit", "overwrite"):
                self.check_disk(self.strike(fault, None))
            else:
                with open_folder(self.path) as model:
                    if self.operation == "close":  # after what was acknowledged
                        model.learn(*NEW, operation_id=ID)
                    applied = self.strike(fault, model) or self.operation == "close"
                    self.check_disk(applied, memory=model.classifier)
        self.check_repeated()

    def check(self, fault: Fault) -> None:
        try:
            self.try_once(fault)
        except AssertionError as error:
            when = "after" if fault.after else "before"
            raise AssertionError(
                f"{self.name}: {self.operation}: {fault.way} {when} call {fault.number}: {error}"
            ) from error

    def strike(self, fault: Fault, model: Any) -> bool | None:
        """Whether the change is said to be on disk; None where nothing is said."""
        try:
            with fault.armed():
                self.perform(model)
        except (OSError, KeyboardInterrupt) as error:
            said = isinstance(error, AppliedError) or any(
                "is on disk" in note for note in getattr(error, "__notes__", ())
            )
            return said if model is not None and self.operation != "compact" else None
        return True

    def kill(self, fault: Fault) -> None:
        child = os.fork()
        if child == 0:
            try:
                with fault.armed():
                    self.perform()
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    # ------------------------------------------------------------------------------------- checks
    def check_disk(self, applied: bool | None = None, memory: Any = None) -> None:
        """The model before or the one after, as was said, and the one in memory if one is open."""
        if self.operation == "fit" and not (self.path / "model.safetensors").exists():
            assert not applied, "acknowledged, and not there"
            return
        found = read_folder(self.path).classifier
        assert memory is None or same(memory, found), "memory"
        before = self.before is not None and same(found, self.before)
        after = same(found, self.after)
        assert before or after, "another model"
        if applied is not None:
            assert after if applied else before, f"said that it is on disk: {applied}"

    def check_repeated(self) -> None:
        """Once more with the same id, and nothing is left behind or counted twice."""
        if self.operation == "fit" and (self.path / "model.safetensors").exists():
            open_folder(self.path).close()
        else:
            self.perform()
        found = read_folder(self.path)
        assert same(found.classifier, self.after), "not once"
        names = {path.name for path in self.path.iterdir()}
        keys = (
            f"keys-{self.after.keys_.fingerprint[:16]}.safetensors"
            if hasattr(self.after, "keys_")
            else ""
        )
        assert names <= {"lock", "journal", "model.safetensors", keys}, f"left behind: {names}"
        if self.operation in (*UNLEARNING, "undo"):
            for path in self.path.iterdir():
                assert b"secret-word" not in path.read_bytes(), f"in {path.name}"
        with open_folder(self.path) as model:  # and what is learned now is seen by readers
            model.learn(X[:1], Y[:1])
            assert len(read_folder(self.path).history) == len(found.history) + 1, "ignored"


@contextmanager
def _compacting(wanted: bool) -> Iterator[None]:
    with mock.patch.object(folder, "MOST_SECONDS", 0.0 if wanted else float("inf")):
        yield


def attack(names: tuple[str, ...], share: float, seed: int) -> Counter[str]:
    """Try faults at that share of all system calls; how many of each kind were tried.

    At each call something fails or is interrupted, before the call or after it. At each call that
    changes a disk the process is also killed; in between a kill finds the same disk.
    """
    rng = np.random.default_rng(seed)
    tried: Counter[str] = Counter()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a record that was cut off
        for name in names:
            for operation in operations(name):
                trial = Attack(Path(place), name, operation)
                for number, call in enumerate(trial.calls, start=1):
                    ways = [str(rng.choice(ERRORS)), *(["kill"] if call in CHANGING else [])]
                    for way in ways:
                        if rng.random() < share:
                            trial.check(Fault(number, way, after=bool(rng.random() < 0.5)))
                            tried[way] += 1
    return tried


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    tried = attack(tuple(options.names.split(",")), options.share, options.seed)
    report = {**tried, "seed": options.seed, "seconds": round(time.perf_counter() - start, 1)}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
