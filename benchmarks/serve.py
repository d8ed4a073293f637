"""`dkvb serve` under load: throughput and latency beside the same calls in process, and beside a
bare FastAPI route that reads the same body and does nothing.

    python -m benchmarks serve [--only kernel start] [--rows 10000] [--seconds 6]

Served and bare route take turns, with the same settings of uvicorn and the same clients, so that
the load of the machine is the same for both. `start` is the service with an encoder that
nobody has asked anything: seconds until it is ready, and memory beyond that of `import torch`.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response

from benchmarks import records
from dkvb.estimators.registry import make_classifier
from dkvb.store import create, open_folder

WIDTH, N_CLASSES = 768, 20
MODELS = {"kernel": ("kernel", {})}
SHARE = 0.4  # of the bare route's throughput that predict must reach
SECONDS = 0.4  # p95 of one learned example
TURNS = 3
ENCODER, MEGABYTES, READY_SECONDS = "efficientnet_lite0", 300, 10


def problem(rows: int, width: int = WIDTH) -> tuple[Any, Any]:
    """Embeddings and labels of classes that overlap."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(N_CLASSES, width))
    y = rng.integers(N_CLASSES, size=rows)
    X = centres[y] + rng.normal(scale=3, size=(rows, width))
    return np.maximum(X, 0).astype(np.float32), np.array([f"class {i}" for i in y])


def npy(X: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, X)
    return buffer.getvalue()


# ------------------------------------------------------------------------------------------ servers
def bare(port: int) -> None:
    """A FastAPI route that reads the body and does nothing."""
    import uvicorn

    from dkvb.serve.server import SERVER

    app = FastAPI()

    @app.post("/v1/predict")
    async def predict(request: Request) -> Response:
        await request.body()
        return Response(b"{}", media_type="application/json")

    uvicorn.run(app, port=port, **SERVER)


@contextmanager
def running(arguments: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server in another process, once it listens."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            try:
                asyncio.run(_connect(port))
                break
            except OSError:
                time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(30)


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


# --------------------------------------------------------------------------------------------- load
async def _client(
    port: int, requests: Callable[[int], bytes], deadline: float, times: list[float], number: int
) -> None:
    """Requests one after another over one connection, as light as possible."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    i = number
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        writer.write(requests(i))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode() + (await reader.read(2000)).decode())
        lower = head.lower()
        place = lower.index(b"content-length:") + 15
        await reader.readexactly(int(lower[place : lower.index(b"\r\n", place)]))
        times.append(time.perf_counter() - start)
        i += 1_000_000
    writer.close()


def load(port: int, requests: Callable[[int], bytes], clients: int, seconds: float) -> list[float]:
    """Seconds of every request that some clients made, sorted."""

    async def run() -> list[float]:
        times: list[float] = []
        deadline = time.perf_counter() + seconds
        await asyncio.gather(*(_client(port, requests, deadline, times, i) for i in range(clients)))
        return times

    return sorted(asyncio.run(run()))


def request(path: str, body: bytes, kind: str = "application/x-npy", more: str = "") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def timed(call: Callable[[int], Any], seconds: float) -> list[float]:
    """Seconds of every call in this process, one after another, sorted."""
    times, deadline, i = [], time.perf_counter() + seconds, 0
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - start)
        i += 1
    return sorted(times)


def facts(times: Sequence[float], seconds: float) -> dict[str, float]:
    p50, p95, p99 = np.quantile(times, [0.5, 0.95, 0.99]).tolist()
    return {"per_second": len(times) / seconds, "p50": p50, "p95": p95, "p99": p99}


# -------------------------------------------------------------------------------------------- bench
def measure(
    name: str, rows: int, clients: int, seconds: float, port: int
) -> Iterator[dict[str, Any]]:
    """One record per way to ask or teach a model."""
    X, y = problem(rows + 4096)
    asked, taught = X[rows : rows + 2048], X[rows + 2048 :]
    kind, settings = MODELS[name]
    what = {"model": name, "rows": rows, "width": WIDTH, "clients": clients}
    bodies = [request("/v1/predict", npy(row[None])) for row in asked]

    def predict(i: int) -> bytes:
        return bodies[i % len(bodies)]

    def learn(i: int) -> bytes:
        label = f"class%20{i % N_CLASSES}"
        return request(f"/v1/learn?label={label}", npy(taught[i % len(taught)][None]))

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model"
        create(path, make_classifier(kind, settings).fit(X[:rows], y[:rows])).close()
        with open_folder(path) as folder:
            classifier = folder.classifier
            classifier.ask(asked[:1])
            times = timed(lambda i: classifier.ask(asked[i % 2048][None]), seconds)
            yield {**what, "op": "predict", "way": "in process", **facts(times, seconds)}
        arguments = ["-m", "dkvb", "serve", str(path), "--port", str(port)]
        bare_port, turn = port + 1, seconds / TURNS
        with (
            running(["-m", "benchmarks.serve", str(bare_port)], bare_port),
            running(arguments, port),
        ):
            spent: dict[int, list[float]] = {bare_port: [], port: []}
            for own in spent:
                load(own, predict, clients, 1)
            for _ in range(TURNS):
                for own, times in spent.items():
                    times += load(own, predict, clients, turn)
            reference, found = (facts(times, TURNS * turn) for times in spent.values())
            yield {**what, "op": "predict", "way": "bare route", **reference}
            share = found["per_second"] / reference["per_second"]
            met = share >= SHARE
            yield {**what, "op": "predict", "way": "served", **found, "share": share, "met": met}
            found = facts(load(port, learn, clients, seconds), seconds)
            met = found["p95"] < SECONDS
            yield {**what, "op": "learn", "way": "served", **found, "met": met}
        with open_folder(path) as folder:
            times = timed(lambda i: folder.learn(taught[i % 2048][None], ["class 1"]), seconds)
            yield {**what, "op": "learn", "way": "in process", **facts(times, seconds)}


def start(port: int) -> dict[str, Any]:
    """The service with an encoder before anybody asks: seconds until ready, megabytes."""
    import_torch = "import os, torch; print(open('/proc/self/statm').read().split()[1])"
    alone = subprocess.run([sys.executable, "-c", import_torch], capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as place:
        path, begun = str(Path(place) / "model"), time.perf_counter()
        options = ["--encoder", ENCODER, "--port", str(port)]
        with running(["-m", "dkvb", "serve", path, *options], port) as process:
            ready = time.perf_counter() - begun
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    megabytes = (pages - int(alone.stdout)) * 4096 / 1e6
    met = ready <= READY_SECONDS and megabytes <= MEGABYTES
    return {"op": "start", "encoder": ENCODER, "seconds": ready, "megabytes": megabytes, "met": met}


def run(out: Path, only: Sequence[str], rows: int, clients: int, seconds: float, port: int) -> int:
    """Measure, print and append the results; 1 where a target is missed."""
    found = []
    for name in only:
        for one in measure(name, rows, clients, seconds, port) if name in MODELS else [start(port)]:
            found.append(one)
            fields = {key: value for key, value in one.items() if key != "op"}
            records.append(out, [records.record("serve", one["op"], **fields)])
            print(_line(one), flush=True)
    missed = [one for one in found if one.get("met") is False]
    return 1 if missed else 0


def _line(one: dict[str, Any]) -> str:
    met = {True: " met", False: " MISSED"}.get(one.get("met"), "")  # type: ignore[arg-type]
    if one["op"] == "start":
        extra = f"{one['megabytes']:.0f} MB beyond import torch"
        return f"start   {one['encoder']}: ready in {one['seconds']:.1f} s, {extra}{met}"
    numbers = " ".join(f"{q} {records.seconds(one[q])}" for q in ("p50", "p95", "p99"))
    share = f" {100 * one['share']:.0f} % of the bare route" if "share" in one else ""
    how = f"{one['model']:7s} {one['op']:8s} {one['way']:11s}"
    return f"{how} {one['per_second']:8.0f}/s {numbers}{share}{met}"


if __name__ == "__main__":
    bare(int(sys.argv[1]))
