"""Several processes on one machine: time and bytes when rows are split (strong) or added (weak).

Every process has one thread. `strong` gives all processes together as many rows as one has alone,
`weak` gives each as many. A time is that of the slowest process, with all that it sends and waits
for; beside it stands the processor time of the busiest, which others on the machine disturb less,
but which waiting for each other is no part of. Bytes are what process 0 hands over, beside what
shapes promise, and what the machine's network counters saw, beside what rings should send.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import records
from benchmarks.problem import (
    LEARNING_RATE,
    PAPER,
    SMALL,
    SMOOTHING,
    Size,
    embeddings,
    sampled_keys,
)
from dkvb._support import process_group
from dkvb._support.process_group import volume
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.processes import sends_table, update_together
from dkvb.rules.least_squares import sums as least_squares
from dkvb.rules.sgd import descent as sgd

REPEATS = 3
COUNTERS = Path("/proc/net/dev")


@dataclass(frozen=True)
class Shape:
    """Rows of one process, by operation, at a size that takes it about two seconds."""

    size: Size
    n_classes: int
    rows: dict[str, int]


SHAPES = {
    "small": Shape(
        SMALL,
        100,
        {"snap": 12_000, "counts": 4_000_000, "keys, ema": 5_000, "keys, lloyd": 5_000,
         "least squares": 4_000, "sgd": 10_000},
    ),
    "paper": Shape(
        PAPER,
        1000,
        {"snap": 2_000, "counts": 100_000, "keys, ema": 5_000, "keys, lloyd": 5_000,
         "least squares": 4_000, "sgd": 1_280},
    ),
    "tiny": Shape(
        Size("tiny", 4, 32, key_dim=5, width=24),
        5,
        {"snap": 100, "counts": 500, "keys, ema": 100, "keys, lloyd": 100,
         "least squares": 100, "sgd": 100},
    ),
}  # fmt: skip


def run(
    processes: Sequence[int], size: str, out: Path, plot: Path, only: Sequence[str] = ()
) -> int:
    """Measure, append to `out`, draw `plot`, print a table; 1 where bytes are not as promised."""
    found = [row for n in processes for row in _start(n, size, only)]
    alone = {(r["op"], r["mode"]): r for r in found if r["processes"] == processes[0]}
    for row in found:
        first = alone[row["op"], row["mode"]]
        grown = row["rows"] / first["rows"]
        row["speedup"] = grown * first["seconds"] / row["seconds"]
        row["speedup_busy"] = grown * first["busy_seconds"] / row["busy_seconds"]
    rows = [records.record("scaling", row.pop("op"), kind=row.pop("mode"), **row) for row in found]
    records.append(out, rows)
    _draw(rows, plot)
    records.show(
        f"{records.cpu_name()}, {os.cpu_count()} cores, one thread per process, {size}",
        [
            "<operation",
            "<rows",
            "processes",
            "time",
            "as fast",
            "busy",
            "as fast",
            "bytes",
            "promised",
            "wire",
            "ring",
        ],
        [
            [
                row["op"],
                f"{row['kind']}, {row['rows']:,}",
                str(row["processes"]),
                records.seconds(row["seconds"]),
                f"{row['speedup']:.2f} ×",
                records.seconds(row["busy_seconds"]),
                f"{row['speedup_busy']:.2f} ×",
                f"{row['bytes']:,}",
                f"{row['promised']:,}",
                records.megabytes(row["wire_bytes"]),
                records.megabytes(row["ring_bytes"]),
            ]
            for row in rows
        ],
        f"load average {os.getloadavg()[0]:.1f}",
    )
    return int(any(row["bytes"] != row["promised"] for row in rows))


def _start(processes: int, size: str, only: Sequence[str]) -> list[dict[str, Any]]:
    """A job of so many processes; what its first one measured."""
    unknown = sorted(set(only) - set(OPERATIONS))
    if unknown:
        raise SystemExit(f"--only: expected some of {', '.join(OPERATIONS)}; got {unknown[0]}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scaling", size, *only],
            cwd=Path(__file__).parents[1],
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    printed = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"{processes} processes failed; see above")
    return [json.loads(line) for line in printed[0].splitlines()]


def work(size: str, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """In one process of a job: every operation, strong and weak."""
    shape, found = SHAPES[size], []
    for op, prepare in OPERATIONS.items():
        if only and op not in only:
            continue
        for mode in ("strong", "weak"):
            grown = process_group.world_size() if mode == "weak" else 1
            n = grown * shape.rows[op]
            call, promised = prepare(shape, n)
            best, busy, handed, wire = float("inf"), float("inf"), Counter[str](), None
            for _ in range(REPEATS + 1):  # the first one compiles
                before, sent = _handed(), _on_the_wire()
                process_group.all_reduce_int(0)
                start, worked = time.perf_counter(), time.process_time()
                call()
                busy = min(busy, time.process_time() - worked)
                process_group.all_reduce_int(0)
                best = min(best, time.perf_counter() - start)
                handed = _handed() - before
                wire = None if sent is None else (_on_the_wire() or 0) - sent
            everyones = [Counter(one) for one in process_group.all_gather_objects(handed)]
            in_all = sum(everyones, Counter[str]())
            own_bytes = handed.total()
            found.append(
                {
                    "op": op,
                    "mode": mode,
                    "processes": process_group.world_size(),
                    "rows": n,
                    "seconds": best,
                    "busy_seconds": max(process_group.all_gather_objects(busy)),
                    "bytes": own_bytes,  # of process 0
                    "promised": promised(),
                    "wire_bytes": wire,  # of all processes together
                    "ring_bytes": _ring_bytes(in_all),
                    "size": size,
                }
            )
    return found


Prepared = tuple[Callable[[], Any], Callable[[], int]]  # what to time, and bytes it should send


def _rows(shape: Shape, n: int) -> Tensor:
    own = process_group.shard(n)
    return embeddings(own.stop - own.start, shape.size.width, seed=process_group.rank())


def _snap(shape: Shape, n: int) -> Prepared:
    keys, x = sampled_keys(shape.size), _rows(shape, n)
    return lambda: keys.codes(x), lambda: 0


def _counts(shape: Shape, n: int) -> Prepared:
    s, Y = shape.size, shape.n_classes
    generator = torch.Generator().manual_seed(process_group.rank())
    own = process_group.shard(n)
    y = torch.randint(Y, (own.stop - own.start,), generator=generator)
    # Classes share keys, a few popular ones each, as real codes do.
    favourite = torch.randint(s.n_pairs, (Y, s.n_codebooks, 16), generator=generator)
    pick = torch.randint(16, (len(y), s.n_codebooks), generator=generator)
    codes = favourite[y[:, None], torch.arange(s.n_codebooks), pick].to(torch.uint16)
    empty = counts.grow(counts.start(s.n_codebooks, s.n_pairs), Y)

    def promised() -> int:
        if process_group.world_size() == 1:
            return 0
        local = counts.update(empty, codes, y)
        longest = max(process_group.all_gather_objects(len(local.whole)))
        rows = max(process_group.all_gather_objects(len(local.kept_codes)))
        kept = volume.kept_rows(rows, s.n_codebooks)
        if any(process_group.all_gather_objects(local.sketch is not None)):
            cells = max(process_group.all_gather_objects(len(local.kept.cells)))
            kept = volume.sketch_cells(cells, s.n_codebooks)
        per_class = 8 * Y
        if sends_table(longest, s.n_codebooks * s.n_pairs * Y):
            return volume.counts_table(s.n_codebooks, s.n_pairs, Y) + kept + per_class
        return volume.counts_lists(longest, 0, s.n_codebooks) + kept + per_class

    return lambda: update_together(empty, codes, y), promised


def _keys(method: str) -> Callable[[Shape, int], Prepared]:
    def prepare(shape: Shape, n: int) -> Prepared:
        s, x, epochs = shape.size, _rows(shape, n), 2

        def fit() -> Any:
            return fit_keys(
                x, preset="paper", n_codebooks=s.n_codebooks, n_pairs=s.n_pairs, key_dim=s.key_dim,
                epochs=epochs, method=method,
            )  # fmt: skip

        def promised() -> int:
            if process_group.world_size() == 1:
                return 0
            from dkvb.bottleneck.key_data import HELD_OUT_MOST, _held

            C, K, d = s.n_codebooks, s.n_pairs, s.key_dim
            held, centre = int(_held(x).sum()), 8 * s.width
            most_held = max(process_group.all_gather_objects(min(held, HELD_OUT_MOST)))
            side = centre + 2 * most_held * s.width * 4  # held-out rows are looked at twice
            if method == "lloyd":
                return epochs * volume.lloyd_pass(C, K, d) + (12 * d + 8) * C * K + side
            own = [part.stop - part.start for part in process_group.parts(C)]
            others = C - own[process_group.rank()]
            return volume.ema_exchange(len(x) - held, others, d) + max(own) * K * d * 4 + side

        return fit, promised

    return prepare


def _least_squares(shape: Shape, n: int) -> Prepared:
    M, Y = 1024 if shape.size.name != "tiny" else 64, shape.n_classes
    own = process_group.shard(n)
    generator = torch.Generator().manual_seed(process_group.rank())
    phi = torch.randint(9, (own.stop - own.start, M), generator=generator).double()
    y = torch.randint(Y, (len(phi),), generator=generator)
    empty, held = least_squares.empty(M, Y), y % 10 == 0

    def batches() -> Any:
        for part in torch.arange(len(phi)).split(512):
            yield phi[part], y[part], held[part]

    alone = process_group.world_size() == 1
    bytes_ = 0 if alone else volume.least_squares(M, Y) - 8 * M  # no usage here
    return lambda: least_squares.update_together(empty, batches()), lambda: bytes_


def _sgd(shape: Shape, n: int) -> Prepared:
    """Codebooks are split, rows are not: a strong and a weak run differ in rows alone."""
    s, Y = shape.size, shape.n_classes
    own = process_group.shard(s.n_codebooks)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(s.n_pairs, (n, s.n_codebooks), generator=generator).int()[:, own]
    y = torch.randint(Y, (n,), generator=generator)
    state = sgd.grow(sgd.start(own.stop - own.start, s.n_pairs), Y)
    how: dict[str, Any] = {"batch_size": s.batch, "learning_rate": LEARNING_RATE}
    how |= {"label_smoothing": SMOOTHING, "seed": 1, "epochs": 1}
    alone = process_group.world_size() == 1
    bytes_ = 0 if alone else volume.sgd_step(n, Y)  # of all steps of an epoch
    codes = codes.contiguous()
    how["n_codebooks"] = s.n_codebooks
    return lambda: sgd.update(state, codes, y, **how), lambda: bytes_


OPERATIONS: dict[str, Callable[[Shape, int], Prepared]] = {
    "snap": _snap,
    "counts": _counts,
    "keys, ema": _keys("ema"),
    "keys, lloyd": _keys("lloyd"),
    "least squares": _least_squares,
    "sgd": _sgd,
}


def _handed() -> Counter[str]:
    return Counter({kind: n for kind, n in process_group.traffic().items() if kind != "notes"})


def _on_the_wire() -> int | None:
    """Bytes that all interfaces of this machine have sent; None where nobody counts."""
    if not COUNTERS.exists():
        return None
    lines = COUNTERS.read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines)


def _ring_bytes(handed: Counter[str]) -> float:
    """What all processes together send: sums go round a ring, 2 (N − 1)/N of them; what is gathered
    goes to N − 1 others; what is exchanged, once."""
    size = process_group.world_size()
    summed = 2 * (size - 1) / size * handed["all_reduce"]
    return summed + (size - 1) * handed["all_gather"] + handed["all_to_all"]


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    processes = sorted({row["processes"] for row in rows})
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("strong", "weak"), strict=True):
        cores = os.cpu_count() or 1
        ideal = [min(n, cores) / processes[0] for n in processes]
        axes.plot(processes, ideal, color="0.7", linestyle="--", label=f"{cores} cores at best")
        for op in dict.fromkeys(row["op"] for row in rows):
            own = sorted(
                (r["processes"], r["speedup"]) for r in rows if (r["op"], r["kind"]) == (op, kind)
            )
            (line,) = axes.plot(*zip(*own, strict=True), marker="o", label=op)
            busy = sorted(
                (r["processes"], r["speedup_busy"])
                for r in rows
                if (r["op"], r["kind"]) == (op, kind)
            )
            axes.plot(*zip(*busy, strict=True), linestyle=":", color=line.get_color())
        axes.set_xticks(processes)
        axes.set(title=f"{kind} scaling", xlabel="processes, one thread each")
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("rows per second, one process = 1\n(dotted: of processor time)")
    figure.axes[1].legend(fontsize="small", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with process_group.init():
        measured = work(sys.argv[1], sys.argv[2:])
        if process_group.rank() == 0:
            print("\n".join(map(json.dumps, measured)))
