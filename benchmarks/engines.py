"""Rows per second of one process, and of Spark, Ray and Dask with two workers.

All learn the same Parquet files with `KernelClassifier`, one thread per worker, and must come to
the same examples, bit for bit. Each engine learns the files once before it is timed, so that its
workers have started and imported the package.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import records
from benchmarks.problem import embeddings
from dkvb import KernelClassifier
from dkvb.embedding import read_table

FILES, CLASSES, WORKERS = 8, 100, 2
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def run(n_rows: int, width: int, names: list[str], out: Path) -> int:
    """Measure, append to `out`, print a table; 1 where a model is not that of one process."""
    os.environ.update(ONE_THREAD)  # for the workers that are started from here
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write(folder, n_rows, width)
        expected, alone = _one_process(folder)
        found = [("one process", 1, alone, True)]
        for name in names:
            model, seconds = WAYS[name](folder)
            found.append((name, WORKERS, seconds, _same(model, expected)))
    rows = [
        records.record(
            "engines", name, workers=workers, rows=n_rows, width=width, seconds=seconds,
            rows_per_second=n_rows / seconds, same=same,
        )
        for name, workers, seconds, same in found
    ]  # fmt: skip
    records.append(out, rows)
    records.show(
        f"{records.cpu_name()}, {os.cpu_count()} cores: {n_rows:,} × {width} from Parquet",
        ["<with", "workers", "time", "rows per second", "<model"],
        [
            [row["op"], str(row["workers"]), records.seconds(row["seconds"]),
             f"{row['rows_per_second']:,.0f}", "the same" if row["same"] else "another"]
            for row in rows
        ],
        f"load average {os.getloadavg()[0]:.1f}",
    )  # fmt: skip
    return int(not all(row["same"] for row in rows))


def _write(folder: Path, n_rows: int, width: int) -> None:
    """Write rows to Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    for i in range(FILES):
        x = embeddings(n_rows // FILES, width, seed=i).numpy()
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width)
        table = pa.table({"x": lists, "y": rng.integers(0, CLASSES, len(x))})
        pq.write_table(table, folder / f"{i}.parquet")


def _learned(files: list[Path], classifier: Any) -> Any:
    for file in files:
        for X, y in read_table(file):
            classifier.partial_fit(X, y)
    return classifier.tune()


def _one_process(folder: Path) -> tuple[Any, float]:
    files = sorted(folder.glob("*.parquet"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _learned(files[:1], KernelClassifier())
    start = time.perf_counter()
    model = _learned(files, KernelClassifier())
    seconds = time.perf_counter() - start
    torch.set_num_threads(threads)
    return model, seconds


def _timed(learn: Callable[[], Any]) -> tuple[Any, float]:
    learn()  # workers start
    start = time.perf_counter()
    model = learn()
    return model, time.perf_counter() - start


def _spark(folder: Path) -> tuple[Any, float]:
    from pyspark.sql import SparkSession

    from dkvb.engines import spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    try:
        frame = session.read.parquet(*map(str, sorted(folder.glob("*.parquet"))))
        return _timed(lambda: spark.fit(frame.coalesce(WORKERS), KernelClassifier()))
    finally:
        session.stop()


def _ray(folder: Path) -> tuple[Any, float]:
    from dkvb._support.optional import require
    from dkvb.engines import ray as engine

    ray = require("ray.data", "ray", "benchmarks")
    require("ray", "ray", "benchmarks").init(
        num_cpus=WORKERS, include_dashboard=False, log_to_driver=False
    )
    try:
        ray.DataContext.get_current().enable_progress_bars = False
        dataset = ray.read_parquet([str(file) for file in sorted(folder.glob("*.parquet"))])
        return _timed(lambda: engine.fit(dataset, KernelClassifier(), n_workers=WORKERS))
    finally:
        require("ray", "ray", "benchmarks").shutdown()


def _dask(folder: Path) -> tuple[Any, float]:
    from distributed import Client, LocalCluster

    from dkvb.engines import dask as engine

    files = sorted(folder.glob("*.parquet"))
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        return _timed(lambda: engine.fit(files, KernelClassifier()))


WAYS: dict[str, Callable[[Path], tuple[Any, float]]] = {
    "spark": _spark,
    "ray": _ray,
    "dask": _dask,
}


def _same(one: Any, other: Any) -> bool:
    ours, theirs = one.state_arrays(), other.state_arrays()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
