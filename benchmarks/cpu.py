"""Every operation on the CPU: ours against what the machine can do, against the package on PyPI
and against plain torch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import checks, records
from benchmarks.contenders import OPERATIONS, Contender, Ours, Peer, contenders, operation
from benchmarks.limits import SHARES, Limit, Machine, limits, lines_of_a_step
from benchmarks.limits import measure as measure_machine
from benchmarks.peak import peak_bytes
from benchmarks.problem import Size, make_problem

# At paper size on two cores: how many times faster than the package on PyPI ours should be.
TARGETS = {"nearest": 40, "sgd-step": 8000, "20-epochs": 1000, "key-init": 80}
MEMORY_TARGET = 1 / 8  # of its peak memory
FEWEST = 3  # runs that a median is taken of
BUDGET = 6.0  # seconds that the runs of one contender may take, if these are enough for FEWEST

WHAT = {
    "nearest": "one evaluation batch: projection and search",
    "sgd-step": "one SGD step; ours and plain torch on codes kept",
    "20-epochs": "20 epochs over 10,000 rows, with projection and search",
    "key-init": "one batch of key initialisation; ours: fit_keys as a whole, by its batches",
}


def run(
    sizes: Sequence[Size],
    out: Path,
    repeats: int,
    with_memory: bool,
    anyway: bool = False,
    patience: float = 90.0,
) -> int:
    """Measure, append to `out`, print tables; 1 if anything was refused, or the machine is busy."""
    busy = None if anyway else records.quiet(patience)
    if busy:
        print(busy)
        return 1
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    refused = False
    for size in sizes:
        # Memory is measured at the first size only, in processes of their own: they take a minute.
        rows, machine = measure(size, repeats, with_memory and size is sizes[0])
        busy = None if anyway else records.loaded(torch.get_num_threads())
        if busy:
            for row in rows:
                row["ratio"], row["share"] = None, None
        records.append(out, rows)
        _show_limits(size, rows, machine)
        _show(size, rows)
        if busy:
            print(f"No ratios: {busy}")
        refused |= bool(busy) or any(row["refused"] for row in rows)
    if Peer not in contenders():
        print("The package on PyPI is not installed: `make bench` installs it and compares.")
    return int(refused)


def measure(size: Size, repeats: int, with_memory: bool) -> tuple[list[dict[str, Any]], Machine]:
    """One record for each operation and contender, and what the machine can do."""
    problem = make_problem(size)
    ours = Ours(problem)
    runners: list[Contender] = [ours, *(kind(problem) for kind in contenders()[1:])]
    codes = ours.nearest()
    wrong = checks.all_of(problem, codes)
    agreement = {
        runner.name: float((runner.nearest() == codes.long()).double().mean())
        for runner in runners[1:]
    }
    machine = measure_machine(size)
    at_best = limits(size, machine)
    times: dict[tuple[str, str], tuple[float, int, str]] = {}  # seconds, runs, note
    load = {}  # when it was timed; memory is measured later
    for op in OPERATIONS:
        timed = []
        for runner in runners:
            known = {name: times.get((runner.name, name), (0.0,))[0] for name in OPERATIONS}
            guess = runner.extrapolated(known["nearest"], known["sgd-step"])
            if op == "20-epochs" and guess is not None:
                times[runner.name, op] = (guess[0], 0, guess[1])
            else:
                timed.append(runner)
        calls = [operation(runner, op) for runner in timed]
        for runner, taken in zip(timed, alternate(calls, repeats), strict=True):
            times[runner.name, op] = median(taken) / runner.units.get(op, 1), len(taken), ""
        load[op] = os.getloadavg()[0]
    del runners
    peak = {kind.name: peak_bytes(kind.name, size.name) for kind in contenders() if with_memory}
    found = []
    for op in OPERATIONS:
        for name in (kind.name for kind in contenders()):
            seconds, runs, note = times[name, op]
            if op == "nearest" and name != ours.name:
                note = f"{agreement[name]:.2%} of codes as ours"
            reason = wrong[op]
            found.append(
                records.record(
                    "cpu",
                    op,
                    size=size.name,
                    contender=name,
                    seconds=None if reason and name == ours.name else seconds,
                    ratio=None if reason else seconds / times[ours.name, op][0],
                    share=None if reason else share(at_best[op], seconds),
                    limit=asdict(at_best[op]),
                    machine=asdict(machine),
                    peak_bytes=peak.get(name, {}).get(op),
                    repeats=runs,
                    load=load[op],
                    note=note,
                    refused=reason if name == ours.name else None,
                )
            )
    return found, machine


def share(limit: Limit, seconds: float) -> float:
    """How much of the limit is reached: 1 is the least time possible."""
    return limit.seconds / seconds


def alternate(
    calls: Sequence[Callable[[], Any]], repeats: int, budget: float = BUDGET
) -> list[list[float]]:
    """The seconds of each call, taking turns.

    The first turn warms up and is not counted, unless it takes as long as the budget. A call is
    repeated at most `repeats` times, and no more than FEWEST times if that exceeds the budget.
    """
    taken: list[list[float]] = []
    wanted = []
    for call in calls:
        first = _seconds(call)
        taken.append([first] if first >= budget else [])
        wanted.append(min(repeats, max(FEWEST, int(budget / max(first, 1e-9)))))
    while any(len(own) < n for own, n in zip(taken, wanted, strict=True)):
        for call, own, n in zip(calls, taken, wanted, strict=True):
            if len(own) < n:
                own.append(_seconds(call))
    return taken


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _show_limits(size: Size, rows: list[dict[str, Any]], machine: Machine) -> None:
    lines = []
    for row in rows:
        if row["contender"] != Ours.name:
            continue
        target, reached = SHARES.get(row["op"]), row["share"]
        judged = target is not None and size.name == "paper"
        goal = f"{target:.0%}" if judged else ""
        if judged and reached is not None and reached < target:
            goal += " missed"
        lines.append(
            [
                row["op"],
                records.seconds(row["seconds"]),
                records.seconds(row["limit"]["seconds"]),
                row["limit"]["what"],
                "" if reached is None else f"{reached:.0%}",
                goal,
            ]
        )
    random_step = machine.random_lines * lines_of_a_step(size)
    records.show(
        f"dkvb against this machine, {size.name}",
        ["<operation", "time", "limit", "<of", "share of the limit", "target"],
        lines,
        f"matrix products {machine.float32 / 1e9:.0f} GF/s in float32, "
        f"{machine.float64 / 1e9:.0f} in float64; copy {machine.copied / 1e9:.1f} GB/s; the cache "
        f"lines of an SGD step in random order, by a plain loop: {records.seconds(random_step)}",
    )


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
        part = "" if first or not row["peak_bytes"] else f"{own / row['peak_bytes']:.3f}"
        if against_peer and part and own / row["peak_bytes"] > MEMORY_TARGET:
            part += " missed"
        lines.append(
            [
                op if first else "",
                "package on PyPI" if row["contender"] == Peer.name else row["contender"],
                records.seconds(row["seconds"]),
                str(row["repeats"] or ""),
                "" if first or row["ratio"] is None else f"{row['ratio']:,.3g}×"
                if row["ratio"] < 100 else f"{row['ratio']:,.0f}×",
                goal,
                records.megabytes(row["peak_bytes"]),
                part,
                row["refused"] or row["note"],
            ]
        )  # fmt: skip
    columns = ["<operation", "<", "median", "runs", "ours faster", "target"]
    records.show(
        f"{size.n_codebooks} codebooks × {size.n_pairs} pairs, key dim {size.key_dim}, embeddings "
        f"of {size.width}, batch {size.batch}, {size.n_classes} classes",
        [*columns, "peak memory", "ours of it", "<"],
        lines,
        "\n".join(f"{op}: {what}" for op, what in WHAT.items())
        + f"\n{records.cpu_name()}, {torch.get_num_threads()} threads, "
        f"load average {max(row['load'] for row in rows):.1f}",
    )
