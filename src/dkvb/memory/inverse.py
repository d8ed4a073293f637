"""The inverse of a kernel matrix with its noise, and what is added to it and taken from it.

With A = K + diag(noise), A⁻¹ is kept as the Cholesky factor of A for the points that were solved
for, and one vector for each point that came or went since: A⁻¹ = L⁻ᵀL⁻¹ + Σ ±v vᵀ. A change costs
one pass over these numbers and solves nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, solve_triangular

Rows = NDArray[Any]
F64 = NDArray[np.float64]

_CLAIMING = Lock()
_FACTORISE = {np.dtype(np.float64): lapack.dpotrf, np.dtype(np.float32): lapack.spotrf}


class NotPositiveDefinite(ArithmeticError):
    """The kernel matrix with its noise has no Cholesky factor in this precision."""


def cholesky(matrix: Rows) -> Rows:
    """The lower factor of a symmetric matrix (N, N) in Fortran's order, of which the lower triangle
    is read and all is overwritten."""
    lower, failed = _FACTORISE[matrix.dtype](matrix, lower=1, overwrite_a=1, clean=1)
    if failed or not np.isfinite(lower.diagonal()).all():  # NaN is no failure to LAPACK
        raise NotPositiveDefinite
    found: Rows = lower
    return found


@dataclass(frozen=True, eq=False)
class Inverse:
    """A⁻¹ (M, M) for the N₀ points that were factorised and those that came since."""

    lower: Rows  # (N₀, N₀)
    diagonal: F64 | None  # (M,) of A⁻¹, where it is known
    vectors: F64  # (capacity, capacity): of which the first `count` rows and M columns are in use
    signs: F64  # (capacity,) +1 where a point came, −1 where one went
    count: int
    size: int  # M

    @classmethod
    def of(cls, lower: Rows, diagonal: F64 | None = None) -> Inverse:
        """From the Cholesky factor of A, and the diagonal of A⁻¹ if it is to be known."""
        return cls(lower, diagonal, np.zeros((0, 0), lower.dtype), np.zeros(0), 0, len(lower))

    def __len__(self) -> int:
        return self.size

    @property
    def n_numbers(self) -> int:
        """How many numbers a change passes over."""
        return self.lower.size + self.count * self.size

    def solve(self, b: F64) -> F64:
        """A⁻¹b for b (M, k)."""
        found = np.zeros_like(b)
        n, precision = len(self.lower), self.lower.dtype
        found[:n] = cho_solve((self.lower, True), b[:n].astype(precision), check_finite=False)
        if self.count:
            used = self.vectors[: self.count, : self.size]
            found += used.T @ (self.signs[: self.count, None] * (used @ b))
        return found

    def added(self, cross: F64, corner: F64) -> tuple[Inverse, F64, F64]:
        """The inverse with t more points; A⁻¹·cross (M, t); and the Schur complement (t, t).

        `cross` (M, t) is the kernel of old and new points, `corner` (t, t) that of the new ones
        with their noise.
        """
        u = self.solve(cross)
        schur = corner - cross.T @ u
        root = cholesky(schur.copy(order="F"))
        both = np.concatenate([u, -np.eye(len(corner))]).T  # (t, M + t)
        rows = solve_triangular(root, both, lower=True, check_finite=False)
        return self._with(rows, 1.0), u, schur

    def removed(self, places: NDArray[np.int64]) -> tuple[Inverse, F64]:
        """The inverse without the points at `places` (t,), of which zeros remain, and the columns C
        (M, t) with which values of these go: a − C·a[places]."""
        unit = np.zeros((self.size, len(places)))
        unit[places, np.arange(len(places))] = 1
        columns = self.solve(unit)
        corner = columns[places]
        root = cholesky(((corner + corner.T) / 2).copy(order="F"))
        rows = solve_triangular(root, columns.T, lower=True, check_finite=False)
        weights = cho_solve((root, True), columns.T, check_finite=False).T
        return self._with(rows, -1.0), weights

    def _with(self, rows: F64, sign: float) -> Inverse:
        """The same with more vectors (t, M or more), in place where there is room beside those of
        this value: others may still read it."""
        t, size = rows.shape
        count = self.count + t
        vectors, signs = self.vectors, self.signs
        with _CLAIMING:  # another thread may make another successor
            free = count <= len(signs) and size <= vectors.shape[1]
            free = free and not signs[self.count : count].any()
            if free:
                signs[self.count : count] = sign
        if not free:
            room = max(64, count + count // 4), max(size + 64, size + size // 16)
            vectors, signs = np.zeros(room, vectors.dtype), np.zeros(room[0])
            if self.count:
                vectors[: self.count, : self.size] = self.vectors[: self.count, : self.size]
            signs[: self.count] = self.signs[: self.count]
            signs[self.count : count] = sign
        vectors[self.count : count, :size] = rows
        diagonal = self.diagonal
        if diagonal is not None:
            diagonal = np.append(diagonal, np.zeros(size - self.size))
            diagonal += sign * np.einsum("ij,ij->j", rows, rows)
        return Inverse(self.lower, diagonal, vectors, signs, count, size)
