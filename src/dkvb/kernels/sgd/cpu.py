"""SGD on values on the CPU; see `dkvb.kernels.sgd`.

Each worker owns some codebooks and reads and changes only those; workers meet twice a step, around
the softmax. Sums over codebooks run in blocks of fixed size, so that results do not depend on the
number of threads. Compiling takes about two seconds, once for a machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dkvb.kernels._numba import (
    check_codes,
    compiled,
    run,
    run_together,
    take,
    wait,
)
from dkvb.kernels.sgd._entries import add_entries, read_entries

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
BOOKS = 16  # codebooks of a block
AHEAD = 4  # rows between asking memory for an entry and using it
ALONE = 1 << 14  # numbers read a step below which a second worker costs more than it brings
LONG = 32  # how often entries must be read on average for copying the table to pay
WIDE = 256  # columns from which on an entry is many cache lines anyway


def descend(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float = 0.0,
) -> None:
    """Change values (C, K, Y) in place by SGD over whole epochs."""
    check_codes(codes, y, values)
    if orders.numel() == 0:
        return
    if not 0 <= int(orders.min()) <= int(orders.max()) < len(codes):
        raise ValueError(
            f"orders: expected rows 0 to {len(codes) - 1}; "
            f"got {int(orders.min())} to {int(orders.max())}"
        )
    values = values.detach()
    n_codebooks, n_pairs, n_columns = values.shape
    batch_size = min(batch_size, orders.shape[1])
    many = orders.numel() > LONG * n_pairs and n_columns < WIDE
    table = _padded(values) if many else values.to(torch.float32).contiguous()
    blocks = -(-n_codebooks // BOOKS)
    run_together(
        _descend,
        min(blocks, batch_size * n_codebooks * n_columns // ALONE),
        table.numpy(),
        codes.contiguous().numpy(),
        y.to(torch.int64).contiguous().numpy(),
        orders.contiguous().numpy(),
        batch_size,
        n_columns,
        lr,
        smoothing,
        np.empty((blocks * batch_size, table.shape[2]), np.float32),
        np.zeros((batch_size, table.shape[2]), np.float32),
    )
    if table.data_ptr() != values.data_ptr():
        values.copy_(table[:, :, :n_columns])


def pool(values: Tensor, codes: Tensor) -> Tensor:
    """The sum of the values that each row of codes (B, C) reads: (B, Y)."""
    codes = _checked(values, codes)
    blocks, n = -(-values.shape[0] // BOOKS), len(codes)
    sums = np.empty((blocks * n, values.shape[2]), np.float32)
    run(_visit, blocks, values.numpy(), codes.numpy(), sums, True)
    total = torch.from_numpy(sums).view(blocks, n, -1)
    for block in total[1:]:  # in order, as `descend` does
        total[0] += block
    return total[0]


def push(values: Tensor, codes: Tensor, change: Tensor, seed: int = 0) -> None:
    """Add change (B, Y) to all values that each row of codes (B, C) reads, in place."""
    codes = _checked(values, codes)
    blocks = -(-values.shape[0] // BOOKS)
    run(_visit, blocks, values.numpy(), codes.numpy(), change.contiguous().numpy(), False)


def _checked(values: Tensor, codes: Tensor) -> Tensor:
    if not values.is_contiguous():
        raise ValueError("values: expected a contiguous tensor, which is changed in place")
    check_codes(codes, torch.zeros(len(codes), dtype=torch.int64), values)
    return codes.contiguous()


@compiled
def _visit(
    state: Any, worker: int, workers: int, values: F32, codes: Any, rows: F32, reading: bool
) -> None:
    """Read sums into, or add changes from, `rows`: a block of codebooks a task."""
    n_codebooks, n = values.shape[0], codes.shape[0]
    block = take(state)
    while block * BOOKS < n_codebooks:
        first, last = block * BOOKS, min(block * BOOKS + BOOKS, n_codebooks)
        for i in range(n):
            ahead = min(i + AHEAD, n - 1)
            if reading:
                read_entries(values, codes, i, ahead, first, last, rows, block * n + i)
            else:
                add_entries(values, codes, i, ahead, first, last, rows, i)
        block = take(state)


def _padded(values: Tensor) -> Tensor:
    """A copy with columns of zeros added, so that an entry touches as few cache lines as can be."""
    n_columns = values.shape[2]
    width = 1 << (n_columns - 1).bit_length() if n_columns <= 16 else -(-n_columns // 16) * 16
    return pad(values.to(torch.float32), (0, width - n_columns)).contiguous()


@compiled
def _descend(
    state: Any,
    worker: int,
    workers: int,
    values: F32,
    codes: Any,
    y: I64,
    orders: I64,
    batch_size: int,
    n_columns: int,
    lr: float,
    smoothing: float,
    sums: F32,
    changes: F32,
) -> None:
    n_codebooks = values.shape[0]
    epochs, n = orders.shape
    blocks = (n_codebooks + BOOKS - 1) // BOOKS
    mine = range(blocks * worker // workers, blocks * (worker + 1) // workers)
    meeting = 0
    for epoch in range(epochs):
        for start in range(0, n, batch_size):
            rows = orders[epoch, start : min(start + batch_size, n)]
            size = len(rows)
            for block in mine:
                first, last = block * BOOKS, min(block * BOOKS + BOOKS, n_codebooks)
                for i in range(size):
                    ahead = rows[min(i + AHEAD, size - 1)]
                    at = block * batch_size + i
                    read_entries(values, codes, rows[i], ahead, first, last, sums, at)
            meeting += 1
            wait(state, meeting, workers)

            scale = np.float32(lr / (n_codebooks * size))
            for i in range(size * worker // workers, size * (worker + 1) // workers):
                _logits(sums, i, batch_size, n_codebooks, n_columns, changes)
                _gradient(changes, i, n_columns, y[rows[i]], np.float32(smoothing), scale)
            meeting += 1
            wait(state, meeting, workers)

            # No third meeting: the next sums come from the codebooks this worker has just changed.
            for block in mine:
                first, last = block * BOOKS, min(block * BOOKS + BOOKS, n_codebooks)
                for i in range(size):
                    ahead = rows[min(i + AHEAD, size - 1)]
                    add_entries(values, codes, rows[i], ahead, first, last, changes, i)


@compiled
def _logits(
    sums: F32, i: int, batch_size: int, n_codebooks: int, n_columns: int, logits: F32
) -> None:
    """logits[i] = the mean over codebooks, from the sums of its blocks in order."""
    for column in range(n_columns):
        logits[i, column] = sums[i, column]
    for at in range(batch_size + i, sums.shape[0], batch_size):
        for column in range(n_columns):
            logits[i, column] += sums[at, column]
    for column in range(n_columns):
        logits[i, column] /= np.float32(n_codebooks)


@compiled
def _gradient(logits: F32, i: int, n_columns: int, label: int, smoothing: Any, scale: Any) -> None:
    """Turn logits[i] into the change of each value read: scale · (target − softmax)."""
    highest = logits[i, 0]
    for column in range(1, n_columns):
        highest = max(highest, logits[i, column])
    total = np.float32(0)
    for column in range(n_columns):
        logits[i, column] = np.exp(logits[i, column] - highest)
        total += logits[i, column]
    for column in range(n_columns):
        target = smoothing / np.float32(n_columns)
        if column == label:
            target += np.float32(1) - smoothing
        logits[i, column] = scale * (target - logits[i, column] / total)
