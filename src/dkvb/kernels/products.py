"""Products of a few rows with a matrix, each row's whatever the others are; rows for the tile."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.kernels._numba import compiled
from dkvb.kernels._simd import DOUBLES, HEADS, sum_columns

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def multiply(rows: F64, matrix: F32) -> F64:
    """The product (n, d) float64 of a few rows (n, p) float64 and a matrix (p, d) float32; a row's
    does not depend on others."""
    out = np.empty((len(rows), matrix.shape[1]))
    _multiply(np.ascontiguousarray(rows), np.ascontiguousarray(matrix), out)
    return out


@compiled
def _multiply(rows: F64, matrix: F32, out: F64) -> None:
    picked, sums = np.empty(HEADS, np.int64), np.empty((HEADS, matrix.shape[1]), np.float64)
    for first in range(0, len(rows), HEADS):
        project_from(first, rows, picked, matrix, sums)
        for i in range(first, min(first + HEADS, len(rows))):
            out[i] = sums[i - first]


@compiled
def project(rows: F64, picked: I64, matrix: Any, sums: F64) -> None:
    """sums (HEADS, d) = rows[picked] (HEADS, p) · matrix (p, d); a row's do not depend on
    others."""
    width, key_dim = matrix.shape
    if key_dim >= DOUBLES:  # the last ones may be found twice
        for first in range(0, key_dim, 2 * DOUBLES):
            first = min(first, max(0, key_dim - 2 * DOUBLES))
            second = min(first + DOUBLES, key_dim - DOUBLES)
            sum_columns(rows, picked, matrix, first, second, sums)
    else:
        sums[:] = 0
        for i in range(width):
            for h in range(HEADS):
                for j in range(key_dim):
                    sums[h, j] += rows[picked[h], i] * matrix[i, j]


@compiled
def project_from(first: int, rows: F64, picked: I64, matrix: Any, sums: F64) -> None:
    """`project` of HEADS rows from `first` on; the last row stands for those that are missing."""
    for h in range(HEADS):
        picked[h] = min(first + h, len(rows) - 1)
    project(rows, picked, matrix, sums)


@compiled
def pack_heads(heads: F32, groups: F32) -> None:
    """Negate heads (rows, d), which may be strided, into groups (rows / HEADS, d, HEADS)."""
    rows, key_dim = heads.shape
    for i in range((rows + HEADS - 1) // HEADS * HEADS):
        for j in range(key_dim):
            groups[i // HEADS, j, i % HEADS] = -heads[min(i, rows - 1), j]
