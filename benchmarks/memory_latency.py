"""Predictions of a kernel classifier while somebody teaches it.

    python -m benchmarks memory-latency [--data X.npz] [--rows 30000] [--seconds 60]

One client predicts a row at a time, without a pause, while another learns one row a second, of a
class that is new, and asks for that row at once: its prediction has to be that class. First with
threads of one process, then with `dkvb serve`. Nobody waits for the model to be solved anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dkvb
from benchmarks import records
from benchmarks.memory_size import SPARE
from benchmarks.rows import Rows, Source, read
from benchmarks.serve import npy, request, running
from dkvb.store import create

LIMIT = 0.3  # seconds that a prediction may take
PAUSE = 1.0  # seconds between rows that are learned
TAUGHT = "taught-{}"  # a class of its own for each row
WAYS = ("library", "served")

Found = dict[str, Any]


def problem(rows: int, data: Path | None, width: int, n_classes: int) -> tuple[Rows, Rows]:
    """Rows to learn before, and rows to ask and to teach."""
    source = Source(None if data is None else read(data), width, n_classes)
    before, spare = source.block(0, rows), source.block(rows, rows + SPARE)
    return Rows(before.X, before.y.astype(str)), spare


def facts(asked: list[float], taught: list[float], reflected: list[bool]) -> Found:
    return {
        "predictions": len(asked),
        "median": float(np.median(asked)),
        "p99": float(np.quantile(asked, 0.99)),
        "worst": max(asked),
        "taught": len(taught),
        "learn_median": float(np.median(taught)),
        "learn_worst": max(taught),
        "reflected": sum(reflected),
        "missed": [
            *(["worst"] if max(asked) > LIMIT else []),
            *(["reflected"] if not all(reflected) else []),
        ],
    }


# ----------------------------------------------------------------------------------- in one process
def library(model: dkvb.KernelClassifier, spare: Rows, seconds: float) -> Found:
    """Predict in this thread, and teach in another."""
    taught: list[float] = []
    reflected: list[bool] = []
    deadline = time.perf_counter() + seconds

    def teach() -> None:
        for i in range(int(seconds / PAUSE)):
            row = spare.X[i % SPARE][None]
            start = time.perf_counter()
            model.partial_fit(row, [TAUGHT.format(i)])
            label = model.predict(row)[0]
            taught.append(time.perf_counter() - start)
            reflected.append(bool(label == TAUGHT.format(i)))
            time.sleep(max(0.0, PAUSE - taught[-1]))

    model.predict(spare.X[:1])
    asked, i = [], 0
    teacher = threading.Thread(target=teach)
    teacher.start()
    while time.perf_counter() < deadline or teacher.is_alive():
        asked.append(_seconds(lambda i=i: model.predict(spare.X[i % SPARE][None])))
        i += 1
    teacher.join()
    return facts(asked, taught, reflected)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# ------------------------------------------------------------------------------------------- served
def served(path: Path, spare: Rows, seconds: float, port: int) -> Found:
    """Predict over one connection, and teach over another."""
    arguments = ["-m", "dkvb", "serve", str(path), "--port", str(port)]
    with running(arguments, port):
        return asyncio.run(_both(spare, seconds, port))


async def _both(spare: Rows, seconds: float, port: int) -> Found:
    bodies = [npy(row[None]) for row in spare.X]
    asked: list[float] = []
    taught: list[float] = []
    reflected: list[bool] = []
    done = asyncio.Event()

    async def ask() -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        await _answer(streams, request("/v1/predict", bodies[0]))  # the first lays points out
        i = 0
        while not done.is_set():
            start = time.perf_counter()
            await _answer(streams, request("/v1/predict", bodies[i % SPARE]))
            asked.append(time.perf_counter() - start)
            i += 1

    async def teach() -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        for i in range(int(seconds / PAUSE)):
            body, start = bodies[i % SPARE], time.perf_counter()
            await _answer(streams, request(f"/v1/learn?label={TAUGHT.format(i)}", body))
            answer = json.loads(await _answer(streams, request("/v1/predict", body)))
            taught.append(time.perf_counter() - start)
            reflected.append(answer["predictions"][0]["label"] == TAUGHT.format(i))
            await asyncio.sleep(max(0.0, PAUSE - taught[-1]))
        done.set()

    await asyncio.gather(ask(), teach())
    return facts(asked, taught, reflected)


async def _answer(streams: Any, asked: bytes) -> bytes:
    """The body of the answer to a request."""
    reader, writer = streams
    writer.write(asked)
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    place = lower.index(b"content-length:") + 15
    body: bytes = await reader.readexactly(int(lower[place : lower.index(b"\r\n", place)]))
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError((head + body).decode())
    return body


# ------------------------------------------------------------------------------------------ results
def run(
    out: Path,
    data: Path | None,
    rows: int,
    seconds: float,
    port: int,
    keeps: tuple[str, ...],
    shape: tuple[int, int] = (2048, 100),
) -> int:
    """Measure, print a table, write records; 1 if a limit is not kept."""
    before, spare = problem(rows, data, *shape)
    found = []
    for keep in keeps:
        model = dkvb.KernelClassifier(keep).fit(before.X, before.y)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "model"
            create(path, model).close()
            for way in WAYS:
                load = os.getloadavg()[0]
                if way == "library":
                    one = library(dkvb.load(path), spare, seconds)
                else:
                    one = served(path, spare, seconds, port)
                what = {"keep": keep, "rows": rows, "load_before": load}
                found.append(records.record("memory-latency", way, **what, **one))
                records.append(out, found[-1:])
    records.show(
        f"One row predicted at a time while one a second is learned, {rows:,} before",
        ["<way", "<keeps", "predictions", "median", "p99", f"worst ≤ {LIMIT} s",
         "learn, predict: median", "worst", "reflected at once", "load"],
        [_line(one) for one in found],
        records.cpu_name(),
    )  # fmt: skip
    return int(any(one["missed"] for one in found))


def _line(one: Found) -> list[str]:
    times = [records.seconds(one[name]) for name in ("median", "p99", "worst")]
    times[-1] += " missed" if "worst" in one["missed"] else ""
    return [
        one["op"],
        one["keep"],
        f"{one['predictions']:,}",
        *times,
        *(records.seconds(one[name]) for name in ("learn_median", "learn_worst")),
        f"{one['reflected']} of {one['taught']}",
        f"{one['load_before']:.1f}",
    ]
