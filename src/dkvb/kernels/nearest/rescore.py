"""What needs heads in float64 on the CPU: codes that are decided again, distances from keys."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.kernels import products
from dkvb.kernels._numba import compiled, run, take
from dkvb.kernels._simd import HEADS, PANEL, prefetch
from dkvb.kernels.nearest.bounds import DOUBLE_ROUNDOFF, tolerance_of
from dkvb.kernels.nearest.cpu import (
    ALONE,
    F32,
    F64,
    I32,
    ROWS,
    Prepared,
    make_scratch,
    search_book,
    slack_of,
)
from dkvb.kernels.products import project, project_from

CODES = 32  # of a task

I64 = NDArray[np.int64]

_tolerance = compiled(tolerance_of)


def project_pairs(rows: Tensor, matrices: Tensor, row: Tensor, book: Tensor) -> Tensor:
    """Heads (r, d) float64 of rows[row] in the codebooks book (r,), by matrices (C, p, d)."""
    heads = torch.empty((len(row), matrices.shape[2]), dtype=torch.float64)
    arrays = (rows.contiguous(), matrices.contiguous(), row.contiguous(), book.contiguous(), heads)
    run(_project_pairs, -(-len(row) // CODES), *(array.numpy() for array in arrays))
    return heads


def multiply(rows: Tensor, matrix: Tensor) -> Tensor:
    """`products.multiply` for tensors."""
    return torch.from_numpy(products.multiply(rows.numpy(), matrix.numpy()))


@compiled
def _project_pairs(
    state: Any, worker: int, workers: int, rows: F64, matrices: F32, row: I64, book: I64, heads: F64
) -> None:
    picked, sums = np.empty(HEADS, np.int64), np.empty((HEADS, heads.shape[1]), np.float64)
    task = take(state)
    while task * CODES < len(row):
        at, last = task * CODES, min(task * CODES + CODES, len(row))
        while at < last:
            count = 1  # of pairs of one codebook, which mostly stand together
            while count < HEADS and at + count < last and book[at + count] == book[at]:
                count += 1
            for h in range(HEADS):
                picked[h] = row[at + min(h, count - 1)]
            project(rows, picked, matrices[book[at]], sums)
            heads[at : at + count] = sums[:count]
            at += count
        task = take(state)


def search_with_distances(
    rows: Tensor,
    matrices: Tensor,
    prepared: Prepared,
    bias: Tensor,
    row_error: Tensor,
    book_error: Tensor,
    reach: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `cpu.search_rows` and `refine`, with heads in float64: codes (n, C, 1), where they are
    unsure (n, C), and squared distances (n, C) float64 from heads to these keys.

    `matrices` are those of the projection (C, p, d); `bias` is that of the keys (C, K) in float64,
    `row_error` and `book_error` are for heads in float64.
    """
    n, n_codebooks = len(rows), len(matrices)
    squared = torch.empty((n, n_codebooks), dtype=torch.float64)
    codes = torch.empty((n, n_codebooks, 1), dtype=torch.int32)
    unsure = torch.empty((n, n_codebooks), dtype=torch.bool)
    index = (prepared.keys, prepared.bias, bias, row_error, book_error, reach, scale)
    arrays = (rows.contiguous(), matrices, *index, squared, codes, unsure)
    products = squared.numel() * matrices.shape[2] * (rows.shape[1] + prepared.n_pairs)
    tasks = min(n_codebooks * -(-n // ROWS), 1 + products // ALONE)
    run(_search_with_distances, tasks, *(array.numpy() for array in arrays))
    return codes, unsure, squared


@compiled
def _search_with_distances(
    state: Any,
    worker: int,
    workers: int,
    rows: F64,
    matrices: F32,
    keys: F32,
    bias: F32,
    bias64: F64,
    row_error: F64,
    book_error: F64,
    reach: F64,
    scale: F64,
    squared: F64,
    codes: I32,
    unsure: NDArray[np.bool_],
) -> None:
    (n, n_codebooks), key_dim, n_pairs = squared.shape, matrices.shape[2], bias64.shape[1]
    chunks, most = (n + ROWS - 1) // ROWS, min(n, ROWS)
    scratch, scaled = make_scratch(n, key_dim, 1), np.empty((most, key_dim), np.float32)
    heads = np.empty((most, key_dim), np.float64)
    slack, moved = np.zeros(ROWS + HEADS, np.float32), np.zeros(ROWS, np.float32)
    picked, sums = np.empty(HEADS, np.int64), np.empty((HEADS, key_dim), np.float64)
    key, scan = np.empty(key_dim, np.float64), _make_scan()
    task = take(state)
    while task < chunks * n_codebooks:
        book, start = task // chunks, task % chunks * ROWS
        stop = min(start + ROWS, n)
        for first in range(start, stop, HEADS):
            project_from(first, rows, picked, matrices[book], sums)
            for i in range(first, min(first + HEADS, stop)):
                norm, error = 0.0, row_error[i] * book_error[book]
                for j in range(key_dim):
                    head = sums[i - first, j] * scale[book]
                    heads[i - start, j], scaled[i - start, j] = head, head
                    norm += head * head
                slack[i - start] = slack_of(key_dim, np.sqrt(norm), reach[book], error)
                moved[i - start] = error
        found = codes[start:stop, book], unsure[start:stop, book]
        search_book(
            scaled[: stop - start],
            keys[book],
            bias[book],
            reach[book],
            slack,
            moved,
            scratch,
            found,
        )
        for i in range(start, stop):
            head, error = heads[i - start], row_error[i] * book_error[book]
            if unsure[i, book] and n_pairs > 1:
                code, lowest, second = _lowest_two(head, keys[book], bias64[book], scan)
                norm = np.sqrt((head * head).sum())
                limit = _tolerance(key_dim, norm, reach[book], error, DOUBLE_ROUNDOFF)
                codes[i, book, 0] = code
                unsure[i, book] = not (second - lowest > limit and lowest < np.inf)
            elif n_pairs == 1:
                unsure[i, book] = False
            code = codes[i, book, 0]
            for j in range(key_dim):  # where the search has just read them
                key[j] = keys[book, code // PANEL, j, code % PANEL]
            squared[i, book] = _squared_distance(head, key) / scale[book] ** 2
        task = take(state)


def distances(rows: Tensor, matrices: Tensor, keys: Tensor, codes: Tensor) -> Tensor:
    """Squared distances (n, C, top) float64 from the heads of rows (n, p), by matrices (C, p, d),
    to the keys (C, K, d) that codes (n, C, top) int32 name; the same in any batch."""
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < keys.shape[1]:
        raise ValueError(
            f"codes: expected 0 to {keys.shape[1] - 1}; got {int(codes.min())} to "
            f"{int(codes.max())}; were they made for other keys?"
        )
    out = torch.empty(codes.shape, dtype=torch.float64)
    arrays = (rows.contiguous(), matrices.contiguous(), keys.contiguous(), codes.contiguous(), out)
    tasks = min(len(keys), 1 + len(rows) * matrices.numel() // ALONE)
    run(_distances, tasks, *(array.numpy() for array in arrays))
    return out


@compiled
def _distances(
    state: Any, worker: int, workers: int, rows: F64, matrices: F32, keys: F32, codes: I32, out: F64
) -> None:
    (n, n_codebooks, top), (_, n_pairs, key_dim) = codes.shape, keys.shape
    picked, sums = np.empty(HEADS, np.int64), np.empty((HEADS, key_dim), np.float64)
    book = take(state)
    while book < n_codebooks:
        for first in range(0, n, HEADS):
            for i in range(first, min(first + HEADS, n)):
                for rank in range(top):
                    pair = book * n_pairs + codes[i, book, rank]
                    prefetch(keys, pair * key_dim)
                    prefetch(keys, pair * key_dim + key_dim - 1)
            project_from(first, rows, picked, matrices[book], sums)
            for i in range(first, min(first + HEADS, n)):
                for rank in range(top):
                    key = keys[book, codes[i, book, rank]]
                    out[i, book, rank] = _squared_distance(sums[i - first], key)
        book = take(state)


@partial(compiled, in_order=True)
def _squared_distance(head: F64, key: Any) -> float:
    """The same bits wherever it is called."""
    squared = 0.0
    for j in range(len(head)):
        difference = head[j] - np.float64(key[j])
        squared += difference * difference
    return squared


def refine(heads: Tensor, prepared: Prepared, bias: Tensor, books: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest score in float64, one codebook a head: codes (r,) int32, lowest two (r, 2).

    heads (r, d) float64, books (r,), bias (C, K) float64. The second is infinite if there is one
    key.
    """
    codes, lowest = torch.empty(len(heads), dtype=torch.int32), heads.new_empty((len(heads), 2))
    arrays = (heads.contiguous(), books.contiguous(), prepared.keys, bias, codes, lowest)
    run(_refine, -(-len(heads) // CODES), *(array.numpy() for array in arrays))
    return codes, lowest


@compiled
def _refine(
    state: Any,
    worker: int,
    workers: int,
    heads: F64,
    books: I64,
    keys: F32,
    bias: F64,
    codes: I32,
    lowest: F64,
) -> None:
    scan = _make_scan()
    task = take(state)
    while task * CODES < len(heads):
        for i in range(task * CODES, min(task * CODES + CODES, len(heads))):
            found = _lowest_two(heads[i], keys[books[i]], bias[books[i]], scan)
            codes[i], lowest[i, 0], lowest[i, 1] = found
        task = take(state)


@compiled
def _make_scan() -> tuple[F64, F64, F64, I64]:
    """What `_scan` writes to."""
    scores, first, second = np.empty(PANEL), np.empty(PANEL), np.empty(PANEL)
    return scores, first, second, np.empty(PANEL, np.int64)


@compiled
def _lowest_two(
    head: F64, keys: F32, bias: F64, scan: tuple[F64, F64, F64, I64]
) -> tuple[int, float, float]:
    """The key with the lowest score in one codebook, its score and the next one."""
    # The lowest two of every PANEL-th key, side by side: numba vectorises this, but no minimum.
    scores, first, second, panel_of = scan
    _scan(head, keys, bias, scores, first, second, panel_of)
    best = 0
    for w in range(PANEL):
        if first[w] < first[best]:
            best = w
    next_lowest = second[best]
    for w in range(PANEL):
        if w != best:
            next_lowest = min(next_lowest, first[w])
    return panel_of[best] * PANEL + best, first[best], next_lowest


@compiled
def _scan(
    head: F64, keys: F32, bias: F64, scores: F64, first: F64, second: F64, panel_of: I64
) -> None:
    """The lowest two scores of keys w, PANEL + w, 2 PANEL + w … and the panel of the lowest."""
    for w in range(PANEL):
        first[w], second[w], panel_of[w] = np.inf, np.inf, 0
    for panel in range(keys.shape[0]):
        for w in range(PANEL):
            k = panel * PANEL + w
            scores[w] = bias[k] if k < len(bias) else np.inf
        for j in range(len(head)):
            factor = head[j]
            for w in range(PANEL):
                scores[w] -= factor * np.float64(keys[panel, j, w])
        for w in range(PANEL):
            score, lower = scores[w], first[w]
            second[w] = min(second[w], max(score, lower))
            panel_of[w] = panel if score < lower else panel_of[w]
            first[w] = min(score, lower)
