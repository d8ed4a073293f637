"""Embeddings larger than memory: from a memory map to codes in a memory map."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks import records
from benchmarks.peak import anonymous_memory, memory
from benchmarks.problem import SIZES, Size, embeddings, sampled_keys

WIDTH = 512
LIMIT = 1_000_000_000  # bytes that are not backed by a file, imports included


def run(rows: int, sizes: list[str], out: Path, folder: Path | None = None) -> int:
    """Write rows × 512 float16 to a file and search their codes; 1 if memory exceeds 1 GB."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with TemporaryDirectory(dir=folder) as name:
        source = write(Path(name) / "embeddings.npy", rows)
        found = [
            measure(replace(SIZES[size], width=WIDTH), source, Path(name) / f"codes-{size}.npy")
            for size in sizes
        ]
    records.append(out, found)
    records.show(
        f"{rows:,} × {WIDTH} float16 from a memory map, codes into another",
        ["<keys", "time", "rows/s", "anonymous memory, highest", "after imports"],
        [
            [
                f"{row['n_codebooks']} × {row['n_pairs']}",
                records.seconds(row["seconds"]),
                f"{row['rows'] / row['seconds']:,.0f}",
                records.megabytes(row["peak_bytes"]) + (" missed" if row["missed"] else ""),
                records.megabytes(row["import_bytes"]),
            ]
            for row in found
        ],
        f"{records.cpu_name()}, {torch.get_num_threads()} threads, "
        f"load average {found[0]['load']:.1f}",
    )
    return int(any(row["missed"] for row in found))


def write(path: Path, rows: int) -> Path:
    """Made-up embeddings, chunk by chunk."""
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, WIDTH))
    for start in range(0, rows, 1 << 14):
        file[start : start + (1 << 14)] = embeddings(min(1 << 14, rows - start), WIDTH, start)
    file.flush()
    return path


def measure(size: Size, source: Path, target: Path) -> dict[str, Any]:
    """Snap the rows in `source` into `target`."""
    imported = memory("RssAnon")
    x = np.load(source, mmap_mode="r")
    with anonymous_memory() as highest:
        keys = sampled_keys(size)
        keys.codes(x[:1])  # compiles
        start = time.perf_counter()
        keys.codes(x, out=target)
        seconds = time.perf_counter() - start
    return records.record(
        "memory", "snap", size=size.name, n_codebooks=size.n_codebooks, n_pairs=size.n_pairs,
        rows=len(x), seconds=seconds, peak_bytes=highest[0], import_bytes=imported,
        missed=highest[0] > LIMIT,
    )  # fmt: skip
