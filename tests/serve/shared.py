"""A real server on a free port, in a thread of the tests or in a process of its own."""

from __future__ import annotations

import io
import multiprocessing
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dkvb.estimators.registry import make_classifier
from dkvb.serve import Settings, serve
from dkvb.store import create

WIDTH = 6
CLASSES = ["ant", "bee", "cat"]
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "kernel": ("kernel", {}),
    "sums": ("kernel", {"keep": "sums"}),
    "bottleneck": ("bottleneck", {"n_codebooks": 4, "key_dim": 2, "epochs": 2}),
    "prototypes": ("prototypes", {}),
}


def rows(n: int = 30, seed: int = 0) -> tuple[Any, Any]:
    """Embeddings of classes that can be told apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(CLASSES)
    X = 4 * np.eye(WIDTH)[y] + rng.normal(size=(n, WIDTH))
    return X.astype(np.float32), np.array(CLASSES)[y]


def make_model(path: Path, name: str = "kernel", n: int = 30) -> Path:
    kind, settings = SETTINGS[name]
    X, y = rows(n)
    create(path, make_classifier(kind, settings).fit(X, y)).close()
    return path


@contextmanager
def running(model: Path, **settings: Any) -> Iterator[str]:
    """The address of a service in a thread of this process."""
    started: queue.Queue[Any] = queue.Queue()

    def run() -> None:
        try:
            serve(Settings(model, port=0, **settings), started.put)
        except BaseException as error:
            started.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    found = started.get(timeout=60)
    if isinstance(found, BaseException):
        thread.join()
        raise found
    try:
        yield found.url
    finally:
        found.stop()
        thread.join(30)
        assert not thread.is_alive(), "the service did not end"


@contextmanager
def process(model: Path, *options: str, port: int = 0) -> Iterator[tuple[str, Any]]:
    """The address of `dkvb serve` in a process of its own, and the process."""
    command = [sys.executable, "-m", "dkvb", "serve", str(model), "--port", str(port), *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("serving "), line
        yield line.split()[-1], child
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["dkvb.serve.server", "tests.serve.shared"])


@contextmanager
def forked(model: Path, port: int) -> Iterator[Any]:
    """A service in a process of its own that need not import anything; killed at the end."""
    ours, theirs = _FORKS.Pipe(duplex=False)
    child = _FORKS.Process(target=_serve, args=(model, port, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.recv().startswith("http")
        yield child
    finally:
        child.kill()
        child.join()
        ours.close()


def _serve(model: Path, port: int, started: Any) -> None:
    serve(Settings(model, port=port), lambda found: started.send(found.url))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def npy(X: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, X)
    return buffer.getvalue()


def good(answer: httpx.Response) -> Any:
    """The JSON of an answer that is no problem."""
    assert answer.status_code == 200, answer.text
    return answer.json()


def problem(answer: httpx.Response, status: int, text: str = "") -> Any:
    """The problem that an answer describes, with that status and text in it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == status
    assert text in found["detail"], found["detail"]
    assert "Traceback" not in answer.text
    return found


def picture(color: tuple[int, int, int], seed: int = 0, side: int = 64) -> bytes:
    from PIL import Image

    noise = np.random.default_rng(seed).normal(0, 20, (side, side, 3))
    pixels = np.clip(np.array(color) + noise, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
