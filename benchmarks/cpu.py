"""Every operation on the CPU: ours against the package on PyPI and against plain torch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import checks, records
from benchmarks.contenders import OPERATIONS, Contender, Ours, Peer, contenders, operation
from benchmarks.peak import peak_bytes
from benchmarks.problem import Size, make_problem

# At paper size on two cores: how many times faster than the package on PyPI ours should be.
TARGETS = {"nearest": 25, "sgd-step": 3000, "20-epochs": 500, "key-init": 20}
MEMORY_TARGET = 0.25  # of its peak memory

WHAT = {
    "nearest": "one evaluation batch: projection and search",
    "sgd-step": "one SGD step; ours and plain torch on codes kept",
    "20-epochs": "20 epochs over 10,000 rows, with projection and search",
    "key-init": "one batch of key initialisation; ours: fit_keys as a whole, by its batches",
}


def run(sizes: Sequence[Size], out: Path, repeats: int, with_memory: bool) -> int:
    """Measure, append to `out`, print a table a size; 1 if anything was refused."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    refused = False
    for size in sizes:
        rows = measure(size, repeats, with_memory)
        records.append(out, rows)
        _show(size, rows)
        refused |= any(row["refused"] for row in rows)
    if Peer not in contenders():
        print("The package on PyPI is not installed: `make bench` installs it and compares.")
    return int(refused)


def measure(size: Size, repeats: int, with_memory: bool) -> list[dict[str, Any]]:
    """One record for each operation and contender."""
    problem = make_problem(size)
    ours = Ours(problem)
    runners: list[Contender] = [ours, *(kind(problem) for kind in contenders()[1:])]
    codes = ours.nearest()
    wrong = checks.all_of(problem, codes)
    agreement = {
        runner.name: float((runner.nearest() == codes.long()).double().mean())
        for runner in runners[1:]
    }
    times: dict[tuple[str, str], tuple[float, str]] = {}
    load = {}  # when it was timed; memory is measured later
    for op in OPERATIONS:
        timed = []
        for runner in runners:
            known = {name: times.get((runner.name, name), (0.0, ""))[0] for name in OPERATIONS}
            guess = runner.extrapolated(known["nearest"], known["sgd-step"])
            if op == "20-epochs" and guess is not None:
                times[runner.name, op] = guess
            else:
                timed.append(runner)
        calls = [operation(runner, op) for runner in timed]
        for runner, taken in zip(timed, alternate(calls, repeats), strict=True):
            times[runner.name, op] = taken / runner.units.get(op, 1), ""
        load[op] = os.getloadavg()[0]
    found = []
    for op in OPERATIONS:
        for runner in runners:
            seconds, note = times[runner.name, op]
            if op == "nearest" and runner is not ours:
                note = f"{agreement[runner.name]:.2%} of codes as ours"
            reason = wrong[op]
            found.append(
                records.record(
                    "cpu",
                    op,
                    size=size.name,
                    contender=runner.name,
                    seconds=None if reason and runner is ours else seconds,
                    ratio=None if reason else seconds / times[ours.name, op][0],
                    peak_bytes=peak_bytes(runner.name, op, size.name) if with_memory else None,
                    repeats=repeats,
                    load=load[op],
                    note=note,
                    refused=reason if runner is ours else None,
                )
            )
    return found


def alternate(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The median seconds of each call, taking turns, after one turn that is not counted."""
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        for call, list_ in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                list_.append(time.perf_counter() - start)
    return [median(list_) for list_ in taken]


def _show(size: Size, rows: list[dict[str, Any]]) -> None:
    lines = []
    ours = {row["op"]: row for row in rows if row["contender"] == Ours.name}
    for row in rows:
        op, first = row["op"], row["contender"] == Ours.name
        against_peer = row["contender"] == Peer.name and size.name == "paper"
        goal = f"{TARGETS[op]:,}×" if against_peer else ""
        if goal and row["ratio"] is not None and row["ratio"] < TARGETS[op]:
            goal += " missed"
        own = ours[op]["peak_bytes"]
        share = "" if first or not row["peak_bytes"] else f"{own / row['peak_bytes']:.2f}"
        if against_peer and share and float(share) > MEMORY_TARGET:
            share += " missed"
        lines.append(
            [
                op if first else "",
                "package on PyPI" if row["contender"] == Peer.name else row["contender"],
                records.seconds(row["seconds"]),
                "" if first or row["ratio"] is None else f"{row['ratio']:,.3g}×"
                if row["ratio"] < 100 else f"{row['ratio']:,.0f}×",
                goal,
                records.megabytes(row["peak_bytes"]),
                share,
                row["refused"] or row["note"],
            ]
        )  # fmt: skip
    records.show(
        f"{size.n_codebooks} codebooks × {size.n_pairs} pairs, key dim {size.key_dim}, embeddings "
        f"of {size.width}, batch {size.batch}, {size.n_classes} classes",
        ["<operation", "<", "time", "ours faster", "target", "peak memory", "ours of it", "<"],
        lines,
        "\n".join(f"{op}: {what}" for op, what in WHAT.items())
        + f"\n{records.cpu_name()}, {torch.get_num_threads()} threads, medians of "
        f"{rows[0]['repeats']}, load average {rows[0]['load']:.1f}",
    )
