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

from dkvb.kernels._numba import (
    check_codes,
    compiled,
    huge_empty,
    run,
    run_together,
    take,
    wait,
)
from dkvb.kernels.sgd._entries import BOOKS, add_entries, copy_codes, read_entries

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
EARLY = 16  # rows between asking memory for codes and copying them
ROWS = 256  # whose codes are copied together
ALONE = 1 << 14  # numbers read a step below which a second worker costs more than it brings
LONG = 8  # how often entries must be read on average for copying the table to pay
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
    check_codes(codes.numpy(), y.numpy(), values)
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
    values32 = values.to(torch.float32).contiguous()
    many = orders.numel() > LONG * n_pairs and n_columns < WIDE
    width = n_columns
    if many:  # with columns added, so that an entry touches as few cache lines as can be
        width = 1 << (width - 1).bit_length() if width <= 16 else -(-width // 16) * 16
    table = values32.numpy()
    if many:
        table = huge_empty((n_codebooks, n_pairs, width), np.float32)
    blocks = -(-n_codebooks // BOOKS)
    run_together(
        _descend,
        min(blocks, batch_size * n_codebooks * n_columns // ALONE),
        values32.numpy(),
        table,
        many,
        _on_huge_pages(codes) if len(orders) > 1 else codes.contiguous().numpy(),
        y.to(torch.int64).contiguous().numpy(),
        orders.contiguous().numpy(),
        batch_size,
        lr,
        smoothing,
        np.empty((blocks * batch_size, BOOKS), codes.numpy().dtype),
        np.empty((blocks, batch_size, width), np.float32),
        np.zeros((batch_size, width), np.float32),
    )
    if values32.data_ptr() != values.data_ptr():
        values.copy_(values32)


def _on_huge_pages(codes: Tensor) -> NDArray[Any]:
    """A copy of codes: every epoch reads their rows in another order."""
    array = codes.numpy()
    copy = huge_empty(array.shape, array.dtype)
    copy[:] = array
    return copy


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
    check_codes(codes.numpy(), np.zeros(len(codes), np.int64), values)
    return codes.contiguous()


@compiled
def _visit(
    state: Any, worker: int, workers: int, values: F32, codes: Any, rows: F32, reading: bool
) -> None:
    """Read sums into, or add changes from, `rows`: a block of codebooks a task."""
    n_codebooks, n = values.shape[0], codes.shape[0]
    local = np.empty((ROWS, BOOKS), codes.dtype)
    block = take(state)
    while block * BOOKS < n_codebooks:
        first, last = block * BOOKS, min(block * BOOKS + BOOKS, n_codebooks)
        books = values[first:last]
        for start in range(0, n, ROWS):
            size = min(ROWS, n - start)
            for i in range(size):
                copy_codes(codes, start + i, start + i, first, last - first, local, i)
            part = rows[block * n + start :] if reading else rows[start:]
            if reading:
                read_entries(books, local, size, part)
            else:
                add_entries(books, local, size, part)
        block = take(state)


@compiled
def _descend(
    state: Any,
    worker: int,
    workers: int,
    values: F32,
    table: F32,
    copied: bool,
    codes: Any,
    y: I64,
    orders: I64,
    batch_size: int,
    lr: float,
    smoothing: float,
    local: Any,
    sums: F32,
    changes: F32,
) -> None:
    n_codebooks, _, n_columns = values.shape
    epochs, n = orders.shape
    blocks = (n_codebooks + BOOKS - 1) // BOOKS
    mine = range(blocks * worker // workers, blocks * (worker + 1) // workers)
    if copied:
        _copy_books(values, table, mine)
    meeting = 0
    for epoch in range(epochs):
        for start in range(0, n, batch_size):
            rows = orders[epoch, start : min(start + batch_size, n)]
            size = len(rows)
            # The batch's codes are copied: they are read four times, and entries come from memory
            # faster where nothing else does.
            for i in range(size):
                row, later = rows[i], rows[min(i + EARLY, size - 1)]
                for block in mine:
                    first, to = block * BOOKS, block * batch_size + i
                    copy_codes(codes, row, later, first, min(BOOKS, n_codebooks - first), local, to)
            for block in mine:
                books = table[block * BOOKS : min(block * BOOKS + BOOKS, n_codebooks)]
                read_entries(books, local[block * batch_size :], size, sums[block])
            meeting += 1
            wait(state, meeting, workers)

            scale = np.float32(lr / (n_codebooks * size))
            for i in range(size * worker // workers, size * (worker + 1) // workers):
                _logits(sums, i, n_codebooks, n_columns, changes)
                _gradient(changes, i, n_columns, y[rows[i]], np.float32(smoothing), scale)
            meeting += 1
            wait(state, meeting, workers)

            # No third meeting: the next sums come from the codebooks this worker has just changed.
            # The last block comes first: what it read last is still in cache.
            for block in range(mine.stop - 1, mine.start - 1, -1):
                books = table[block * BOOKS : min(block * BOOKS + BOOKS, n_codebooks)]
                add_entries(books, local[block * batch_size :], size, changes)
    if copied:
        _copy_books(table, values, mine)


@compiled
def _copy_books(source: F32, target: F32, blocks: Any) -> None:
    """Copy the columns that both have of some blocks of codebooks; more columns become zero."""
    n_columns = min(source.shape[2], target.shape[2])
    for c in range(blocks.start * BOOKS, min(blocks.stop * BOOKS, len(source))):
        for k in range(source.shape[1]):
            for column in range(n_columns):
                target[c, k, column] = source[c, k, column]
            for column in range(n_columns, target.shape[2]):
                target[c, k, column] = 0


@compiled
def _logits(sums: F32, i: int, n_codebooks: int, n_columns: int, logits: F32) -> None:
    """logits[i] = the mean over codebooks, from the sums of its blocks in order."""
    for column in range(n_columns):
        logits[i, column] = sums[0, i, column]
    for block in range(1, len(sums)):
        for column in range(n_columns):
            logits[i, column] += sums[block, i, column]
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
