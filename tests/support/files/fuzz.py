"""Spoil files of every kind of model and load them.

`python -m tests.support.files.fuzz --files 10000`

Half of them are spoilt as a disk would: bytes changed, cut off, doubled, moved. The other half as
a person would: facts and tensors are changed and all checksums made right again. Each must load or
raise a `FileError`, within a few seconds, without touching more memory than four times the file's
size and 2 MB; what loads must answer, or say that it cannot.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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

from dkvb import (
    BottleneckClassifier,
    KernelClassifier,
    Keys,
    KeyValueBottleneck,
    fit_keys,
)
from dkvb._support import files
from dkvb._support.files import FileError, State
from dkvb.estimators.registry import load_classifier, make_classifier

SECONDS = 10  # a file may take
SLACK = 2 << 20  # bytes that Python and the allocator take for themselves

BASELINES: dict[str, dict[str, Any]] = {
    "linear": {"optimizer": "adam"},
    "mlp": {"hidden": 64},
    "sdmlp": {"n_neurons": 64},
    "ewc": {"hidden": 64},
    "fly": {"n_cells": 64, "n_inputs": 8},
    "prototypes": {},
    "slda": {},
    "ranpac": {"n_features": 100},
    "neighbours": {"k": 3},
}


def models() -> dict[str, Any]:
    """Trained models by name, each some ten or hundred kilobytes in a file."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 24)).astype(np.float32)
    y = np.array(["ant", "bee", "cat"])[rng.integers(0, 3, 300)]
    keys = fit_keys(X, preset="paper", n_codebooks=16, n_pairs=32, key_dim=4, epochs=2)
    small = fit_keys(X, n_codebooks=8, n_pairs=8, key_dim=4, epochs=2, conditioning="whitened")
    made: dict[str, Any] = {
        "keys": keys,
        "module": KeyValueBottleneck(keys, n_outputs=4, decoder="mlp"),
        "bottleneck": BottleneckClassifier(keys).fit(X, y),
        "bfloat16": BottleneckClassifier(keys, value_dtype="bfloat16").fit(X, y),
        "grown": BottleneckClassifier(keys).fit(X, y).grow_keys(4 * X),
        "frozen": BottleneckClassifier(small).fit(X, y).freeze(),
        "kernel": KernelClassifier().fit(X, y),
    }
    for name, settings in BASELINES.items():
        made[name] = make_classifier(name, settings).fit(X, y)
    return made


# -------------------------------------------------------------------------------------- spoiling
def spoilt_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """As a disk, a network or a careless program would."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        # Half of the time in the header, which is short and says most.
        end = len(data) if rng.random() < 0.5 else min(len(data), 1500)
        start, stop = sorted(rng.integers(0, end + 1, 2).tolist())
        way = rng.integers(6)
        if way == 0 and end:
            data[int(rng.integers(end))] ^= 1 << int(rng.integers(8))
        elif way == 1:
            data[start:stop] = rng.bytes(min(stop - start, 64))
        elif way == 2:
            del data[start:stop]
        elif way == 3:
            data[start:start] = data[start:stop]
        elif way == 4:
            del data[start:]
        else:
            data[start:stop] = bytes(stop - start)
    return bytes(data)


ODD = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, "", "ant", "\ud800",
    "../../etc/passwd", "/dev/zero", [], {}, [[]], {"a": None}, ["ant"] * 5, [0] * 40,
)  # fmt: skip


def spoilt_state(state: State, rng: np.random.Generator) -> State:
    """As a person would who makes all checksums right again."""
    arrays, facts = dict(state.arrays), json.loads(json.dumps(state.facts))
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.5 and facts:
            _spoil_fact(facts, rng)
        elif arrays:
            name = sorted(arrays)[int(rng.integers(len(arrays)))]
            _spoil_array(arrays, name, rng)
    return State(arrays, facts)


def _spoil_fact(facts: Any, rng: np.random.Generator) -> None:
    """Change something somewhere in nested lists and dictionaries."""
    places = list(facts) if isinstance(facts, dict) else list(range(len(facts)))
    place = places[int(rng.integers(len(places)))]
    inner = facts[place]
    if isinstance(inner, list | dict) and inner and rng.random() < 0.7:
        _spoil_fact(inner, rng)
    elif rng.random() < 0.2:
        del facts[place]
    elif isinstance(inner, int) and not isinstance(inner, bool) and rng.random() < 0.5:
        facts[place] = inner + int(rng.integers(-2, 3))
    else:
        facts[place] = ODD[int(rng.integers(len(ODD)))]


def _spoil_array(arrays: dict[str, Any], name: str, rng: np.random.Generator) -> None:
    array = arrays[name].copy()
    way = rng.integers(10)
    if way == 0:
        del arrays[name]
    elif way == 7 and array.ndim > 1:
        arrays[name] = array.swapaxes(0, 1)
    elif way == 8 and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            arrays[name] = array * array.dtype.type(rng.choice([0.0, -1.0, 1e-30, 1e30]))
    elif way == 9:
        other = sorted(arrays)[int(rng.integers(len(arrays)))]
        arrays[name] = arrays[other].copy()
    elif way == 1 and array.ndim:
        arrays[name] = array[: int(rng.integers(len(array) + 1))].copy()
    elif way == 2:
        arrays[name] = array.reshape(-1)
    elif way == 3:
        dtypes = (np.float32, np.float64, np.int64, np.int32, np.bool_)
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(dtypes[int(rng.integers(len(dtypes)))])
    elif way == 4:
        arrays[name] = np.empty((0, 1 << 40), dtype=array.dtype)
    elif array.size:
        odd = (0, 1, -1, 2**62, float("nan"), float("inf"))[int(rng.integers(6))]
        where = int(rng.integers(array.size))
        if array.dtype.kind != "f":
            odd = int(odd) if abs(odd) <= 2**62 else 7
            odd = odd if array.dtype == np.int64 else odd % 2
        array.reshape(-1)[where] = odd
        arrays[name] = array


# --------------------------------------------------------------------------------------- loading
def load(path: Path, name: str) -> Any:
    if name == "keys":
        return Keys.load(path)
    return KeyValueBottleneck.load(path) if name == "module" else load_classifier(path)


def ask(model: Any) -> None:
    """A question that any loaded model must answer, or refuse clearly."""
    X = np.random.default_rng(1).normal(size=(3, 24)).astype(np.float32)
    try:
        if isinstance(model, Keys):
            model.codes(X)
        elif isinstance(model, KeyValueBottleneck):
            model(torch.from_numpy(X))
        else:
            model.predict(X)
    except (ValueError, torch.linalg.LinAlgError):
        pass  # nothing learned, rows of another width, or sums that no rows can have


def limited(size: int) -> None:
    """From here on, no more memory than this process has now and a few times `size`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 4 * size + SLACK
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class TooSlow(BaseException):
    """A file took longer than it may."""


def _alarm(*_: object) -> None:
    raise TooSlow


def outcome(path: Path, name: str) -> str:
    """What loading a file comes to; raises for what must not happen."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    limited(path.stat().st_size)
    try:
        model = load(path, name)
    except FileError as error:
        if "allocate" in str(error):
            raise MemoryError(str(error)) from error
        return error.reason
    finally:
        unlimited()
        signal.setitimer(signal.ITIMER_REAL, 0)
    ask(model)
    return "loaded"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--kind", help="one kind of model; all of them in turn unless given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _alarm)
    rng = np.random.default_rng(options.seed)
    found: dict[str, Counter[str]] = {"bytes": Counter(), "facts and tensors": Counter()}
    wrong: list[str] = []
    slowest, start = 0.0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        contents = {}
        for name, model in models().items():
            model.save(path)
            contents[name] = path.read_bytes()
            assert outcome(path, name) == "loaded", name
        names = [options.kind] if options.kind else list(contents)
        for number in range(options.files):
            name = names[number % len(names)]
            way = list(found)[int(rng.integers(2))]
            path.write_bytes(contents[name])
            if way == "bytes":
                spoilt = contents[name]
                while spoilt == contents[name]:
                    spoilt = spoilt_bytes(spoilt, rng)
                path.write_bytes(spoilt)
            else:
                whole = files.read(path)
                files.write(path, whole.kind, spoilt_state(whole.state, rng))
            begun = time.perf_counter()
            try:
                found[way][outcome(path, name)] += 1
            except BaseException as error:
                wrong.append(f"{name}, {way}, file {number}: {type(error).__name__}: {error}")
                if isinstance(error, KeyboardInterrupt):
                    raise
            slowest = max(slowest, time.perf_counter() - begun)
    report = {
        "files": options.files,
        "outcomes": {way: dict(counter) for way, counter in found.items()},
        "seed": options.seed,
        "wrong": wrong,
        "slowest_seconds": round(slowest, 3),
        "seconds": round(time.perf_counter() - start, 1),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
