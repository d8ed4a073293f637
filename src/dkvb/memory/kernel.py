"""The kernel: how alike two points are, of which each may be the mean of many rows.

The mean of a cell lies nearer to everything than its rows do: E‖x − z‖² = ‖x − c‖² + v for a row z
of a cell with mean c and total variance v. So k(x, i) = exp(−γ(‖x − cᵢ‖² + vᵢ)), and of a cell with
itself exp(−γ·2vᵢ(1 − 1/nᵢ)), what two of its n rows have on average. A point of one row has v = 0,
and this is the usual kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
F64 = NDArray[np.float64]

BLOCK = 1024
MEDIAN_ROWS = 1000


def squared_norms(a: Rows) -> Rows:
    """Squared norms (n,) of rows (n, p)."""
    norms: Rows = np.einsum("ij,ij->i", a, a)
    return norms


def squared_distances(a: Rows, b: Rows, b_squares: Rows | None = None) -> Rows:
    """Squared distances (n, N) between rows a (n, p) and b (N, p), whose squared norms (N,) may be
    known."""
    squares = squared_norms(b) if b_squares is None else b_squares
    cross: Rows = a @ b.T
    cross *= -2
    cross += squares.astype(cross.dtype, copy=False)
    cross += squared_norms(a)[:, None]
    return np.maximum(cross, 0, out=cross)


def median_distance(rows: Rows) -> float:
    """The median squared distance among the first rows of (n, p), 1 where all are equal."""
    rows = rows[:MEDIAN_ROWS].astype(np.float64)
    pairs = squared_distances(rows, rows)[np.triu_indices(len(rows), 1)]
    middle = float(np.median(pairs)) if len(pairs) else 0.0
    if middle <= 0 and len(pairs):  # more than half of the pairs are copies
        middle = float(pairs.mean())
    return middle if middle > 0 else 1.0


def rbf(a: Rows, b: Rows, gamma: float, b_squares: Rows | None = None) -> Rows:
    """exp(−γ‖a − b‖²) (n, N) of rows a (n, p) and b (N, p)."""
    kernel = squared_distances(a, b, b_squares)
    kernel *= -gamma
    return np.exp(kernel, out=kernel)


def rbf_matrix(z: Rows, factors: Rows, diagonal: Rows, gamma: float) -> F64:
    """The lower triangle of the kernel matrix (N, N) of points, in the order of memory that LAPACK
    overwrites; factors (N,) are what spread takes from every similarity.

    Above the diagonal is the mirror image within blocks of rows, and nothing beyond them.
    """
    n = len(z)
    matrix = np.empty((n, n), order="F")
    squares = squared_norms(z)
    for start in range(0, n, BLOCK):
        part = slice(start, min(start + BLOCK, n))
        block = rbf(z[part], z[start:], gamma, squares[start:])
        block *= factors[start:].astype(block.dtype)
        block *= factors[part, None].astype(block.dtype)
        matrix[start:, part] = block.T
    matrix[np.diag_indices(n)] = diagonal
    return matrix


def spread_factors(spread: Rows, gamma: float) -> F64:
    """What the spread v (N,) of points takes from their similarity with anything."""
    factors: F64 = np.exp(-gamma * np.asarray(spread, np.float64))
    return factors


def self_similarity(spread: Rows, counts: Rows, gamma: float) -> F64:
    """The similarity (N,) that two rows of one point have on average."""
    inside = np.asarray(spread, np.float64) * (1 - 1 / np.asarray(counts, np.float64))
    similarity: F64 = np.exp(-2 * gamma * inside)
    return similarity
