"""Results as JSON lines and as a table, with machine and load."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = (
    "dkvb",
    "torch",
    "numpy",
    "numba",
    "triton",
    "discrete-key-value-bottleneck-pytorch",
    "vector-quantize-pytorch",
)


@cache
def versions() -> dict[str, str]:
    """Return the versions of installed packages that affect speed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def cpu_name() -> str:
    """As the operating system calls it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def record(mode: str, op: str, **fields: Any) -> dict[str, Any]:
    """Return one result with machine, load and versions."""
    return {
        "mode": mode,
        "op": op,
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        **fields,
    }


LOADED = 0.5  # runnable processes of others per core from which on ratios say little


def loaded(own_threads: int = 0) -> str | None:
    """Why this machine is too busy to compare times, or None.

    `own_threads` are those of the benchmark, which the load average contains while it runs.
    """
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if load <= own_threads + LOADED * cores:
        return None
    return (
        f"load average {load:.1f} on {cores} cores, of which the benchmark is {own_threads}: other "
        "work slows contenders unevenly; wait until it is over, or pass --anyway"
    )


def quiet(patience: float = 90.0) -> str | None:
    """Wait up to `patience` seconds for the load average to fall; why it did not, or None."""
    deadline = time.monotonic() + patience
    while (reason := loaded()) is not None and time.monotonic() < deadline:
        time.sleep(min(5.0, patience))
    return reason


def append(out: Path, records: Iterable[dict[str, Any]]) -> None:
    """One JSON line each, after those of earlier runs."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        for one in records:
            file.write(json.dumps(one) + "\n")


def show(title: str, columns: list[str], rows: Iterable[list[str]], caption: str = "") -> None:
    """Print a table; columns of words begin with "<", the others hold numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title, caption=caption or None, title_justify="left", caption_justify="left"
    )
    for column in columns:
        words = column.startswith("<")
        table.add_column(column.removeprefix("<"), justify="left" if words else "right")
    for row in rows:
        table.add_row(*row)
    console = Console()
    # Without a terminal, as wide as it needs to be: rows cut short would be of no use in a file.
    Console(width=None if console.is_terminal else 150).print(table)


def seconds(value: float | None) -> str:
    """Format seconds."""
    if value is None:
        return "refused"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (300.0, 1.0, "s")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value / 60:,.0f} min"


def megabytes(value: float | None) -> str:
    """Format bytes as MB."""
    return "" if value is None else f"{value / 1e6:,.0f} MB"
