"""Start the service: the process that writes, and beside it processes that only read."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from dkvb.kernels import set_threads
from dkvb.memory import KernelClassifier
from dkvb.serve.app import make_app
from dkvb.serve.encoding import Encoding
from dkvb.serve.followers import Follower
from dkvb.serve.security import is_loopback
from dkvb.serve.service import Service
from dkvb.serve.settings import Settings
from dkvb.serve.transport import OneWrite
from dkvb.serve.writer import Writer
from dkvb.store import ModelFolder, check_target, create, open_folder, read_folder
from dkvb.store.classifiers import prepared

log = logging.getLogger("dkvb.serve")
_PATIENCE = 5.0  # seconds in which readers of a writer that was killed let go of the port
_SWITCH = 5e-4  # seconds that a thread which computes may keep the one that listens waiting
_GRACE = 5  # seconds that requests have to finish when the service ends
SERVER: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "lifespan": "on",
    "timeout_graceful_shutdown": _GRACE,
}  # uvicorn's settings


class Started(NamedTuple):
    """A service that listens."""

    url: str
    stop: Callable[[], None]  # from any thread; the service finishes what it has begun


def serve(settings: Settings, ready: Callable[[Started], None] = lambda started: None) -> None:
    """Serve a model until SIGTERM, SIGINT or `stop`; `ready` is called once it listens."""
    if settings.token is None and not is_loopback(settings.host):
        raise ValueError(
            f"--host: expected 127.0.0.1 unless a token is required; got {settings.host}; give "
            "--token-file with a file that holds one"
        )
    with ExitStack() as stack:
        listening = stack.enter_context(_bind(settings.host, settings.port))
        folder, encoding = _opened(settings)
        writer = Writer(folder, settings.limits.queue, settings.limits.seconds)
        stack.callback(writer.close)
        sockets, private = [listening], ""
        if settings.workers > 1:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dkvb-")))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(place)
            local = stack.enter_context(socket.socket(socket.AF_UNIX))
            private = str(place / "writer.sock")
            local.bind(private)
            sockets.append(local)
        service = Service(settings, writer, encoding)
        service.keep_pictures()
        if settings.workers > 1:
            stack.enter_context(_Readers(settings, listening, private))
        _warm_up(service)
        server = _Server(make_app(service), lambda: ready(Started(_url(listening), server.end)))
        server.run(sockets)


class _Server(uvicorn.Server):
    """A server that says when it has started."""

    def __init__(self, app: object, ready: Callable[[], None]) -> None:
        super().__init__(uvicorn.Config(app, http=OneWrite, **SERVER))  # type: ignore[arg-type]
        self._ready = ready
        sys.setswitchinterval(_SWITCH)
        # The other cores listen: torch's threads, which wait for each other for a while, would
        # take them. Those of compiled kernels wait without taking a core.
        cores = os.cpu_count() or 2
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(max(1, cores // 2))
        set_threads(max(min(2, cores), cores // 2))

    def end(self) -> None:
        """Finish, and return from `run`."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._ready()


class _Readers:
    """Processes that read; one that dies is replaced."""

    def __init__(self, settings: Settings, listening: socket.socket, writer: str) -> None:
        self._arguments = (settings, listening, writer)
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[BaseProcess] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        for _ in range(self._arguments[0].workers - 1):
            self._processes.append(self._started())
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(_GRACE)

    def _started(self) -> BaseProcess:
        process = self._context.Process(target=_read, args=self._arguments, daemon=True)
        process.start()
        return process

    def _watch(self) -> None:
        while not self._ended.wait(1.0):
            for i, process in enumerate(self._processes):
                if not process.is_alive():
                    log.warning("a reader ended with code %s; another one begins", process.exitcode)
                    self._processes[i] = self._started()


def _read(settings: Settings, listening: socket.socket, writer: str) -> None:
    """The main function of a reader."""
    follower = Follower(settings.model, settings.device)
    service = Service(settings, follower, _encoding(settings, follower.model.encoder))
    _warm_up(service)
    _Server(make_app(service, follower, writer), lambda: None).run([listening])


def _opened(settings: Settings) -> tuple[ModelFolder, Encoding | None]:
    """The folder, or a new one, and its encoder."""
    if (settings.model / "model.safetensors").exists():
        # What would be loaded for nothing if it were of another encoder comes first.
        encoding = _encoding(settings, read_folder(settings.model).encoder)
        folder = open_folder(settings.model, settings.device, wait=_PATIENCE)
        if encoding is not None:
            encoding.check_made(folder.model)
        return folder, encoding
    check_target(settings.model, overwrite=False)
    encoding = _encoding(settings, None)
    width = settings.width if encoding is None else encoding.width
    if width is None:
        raise ValueError(
            f"MODEL: expected the folder of a model; there is none at {settings.model}; name an "
            "encoder for a new one with --encoder, or the width of its embeddings with --width"
        )
    classifier = KernelClassifier().begin(width)
    named: dict[str, Any] = {} if encoding is None else {
        "encoder": encoding.name, "encoder_fingerprint": encoding.fingerprint,
    }  # fmt: skip
    return create(settings.model, classifier, **named), encoding


def _encoding(settings: Settings, known: str | None) -> Encoding | None:
    name = settings.encoder or known
    if name is None:
        return None
    trusted = settings.allow_download or settings.encoder is not None
    return Encoding(name, settings.device, trusted)


def _warm_up(service: Service) -> None:
    """Compile, solve, and get ready for changes before the first request comes."""
    import numpy as np

    model = service.model
    if len(model.classifier.classes_) and model.width:
        with suppress(ValueError):  # all that was learned was unlearned
            service.answers([np.zeros((1, model.width), np.float32)])
            prepared(model.classifier)


def _bind(host: str, port: int) -> socket.socket:
    deadline = time.monotonic() + _PATIENCE
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        # With its protocol, without which asyncio leaves Nagle's algorithm on: 40 ms per answer.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(1024)
            return listening
        except OSError as error:
            listening.close()
            if time.monotonic() > deadline:
                raise ValueError(
                    f"--host, --port: expected an address that is free; got {host}:{port} "
                    f"({error.strerror}); choose another port"
                ) from None
            time.sleep(0.1)


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
