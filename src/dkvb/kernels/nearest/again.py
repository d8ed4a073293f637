"""What needs heads in float64 on the CPU: codes that are decided again, distances from keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.kernels._numba import compiled, run, take
from dkvb.kernels._simd import DOUBLES, PANEL, prefetch, sum_columns
from dkvb.kernels.nearest.cpu import ALONE, F32, F64, I32, Prepared

CODES = 32  # of a task
AHEAD = 8  # rows whose keys are asked for before they are needed

I64 = NDArray[np.int64]


def project_pairs(rows: Tensor, matrices: Tensor, row: Tensor, book: Tensor) -> Tensor:
    """Heads (r, d) float64 of rows[row] in the codebooks book (r,), by matrices (C, p, d)."""
    heads = torch.empty((len(row), matrices.shape[2]), dtype=torch.float64)
    arrays = (rows.contiguous(), matrices.contiguous(), row.contiguous(), book.contiguous(), heads)
    run(_project_pairs, -(-len(row) // CODES), *(array.numpy() for array in arrays))
    return heads


@compiled
def _project_pairs(
    state: Any, worker: int, workers: int, rows: F64, matrices: F32, row: I64, book: I64, heads: F64
) -> None:
    task = take(state)
    while task * CODES < len(row):
        for at in range(task * CODES, min(task * CODES + CODES, len(row))):
            _project(rows[row[at]], matrices[book[at]], heads[at])
        task = take(state)


@compiled
def _project(z: F64, matrix: F32, head: F64) -> None:
    """head (d,) = z (p,) · matrix (p, d)."""
    width, key_dim = matrix.shape
    for first in range(0, key_dim - DOUBLES + 1, DOUBLES):
        sum_columns(z, matrix, first, head)
    if key_dim % DOUBLES and key_dim > DOUBLES:  # the last ones, some of which are known
        sum_columns(z, matrix, key_dim - DOUBLES, head)
    if key_dim < DOUBLES:
        head[:] = 0
        for i in range(width):
            for j in range(key_dim):
                head[j] += z[i] * matrix[i, j]


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
    head = np.empty(key_dim, np.float64)
    book = take(state)
    while book < n_codebooks:
        for i in range(-AHEAD, n):
            if i + AHEAD < n:
                for rank in range(top):
                    pair = book * n_pairs + codes[i + AHEAD, book, rank]
                    prefetch(keys, pair * key_dim)
                    prefetch(keys, pair * key_dim + key_dim - 1)
            if i >= 0:
                _project(rows[i], matrices[book], head)
                for rank in range(top):
                    key, squared = keys[book, codes[i, book, rank]], 0.0
                    for j in range(key_dim):
                        difference = head[j] - np.float64(key[j])
                        squared += difference * difference
                    out[i, book, rank] = squared
        book = take(state)


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
    r = len(heads)
    scores = np.empty(PANEL, np.float64)
    # The lowest two of every PANEL-th key, side by side: numba vectorises this, but no minimum.
    first, second = np.empty(PANEL, np.float64), np.empty(PANEL, np.float64)
    panel_of = np.empty(PANEL, np.int64)
    task = take(state)
    while task * CODES < r:
        for i in range(task * CODES, min(task * CODES + CODES, r)):
            _scan(heads[i], keys[books[i]], bias[books[i]], scores, first, second, panel_of)
            best = 0
            for w in range(PANEL):
                if first[w] < first[best]:
                    best = w
            lowest[i, 0], lowest[i, 1] = first[best], second[best]
            for w in range(PANEL):
                if w != best:
                    lowest[i, 1] = min(lowest[i, 1], first[w])
            codes[i] = panel_of[best] * PANEL + best
        task = take(state)


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
