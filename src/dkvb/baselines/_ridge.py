"""Ridge regression from sums over rows, with λ chosen by held-out rows.

V = (G + λI)⁻¹Q with G = Σφφᵀ and Q = Σφyᵀ. λ is given in units of tr(G)/M, which frees it from the
scale of φ and the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dgemm

Floats = NDArray[np.float64]
GRID = tuple(10.0 ** (1 - step / 4) for step in range(23))  # 10 … 10^-4.5, four per decade
TOLERANCE = 0.05  # how much more than the lowest squared error a smaller λ may cost
_DEFAULT = 0.01  # λ where there are no rows to choose by
_DECADE = 4  # steps of the grid
_FIRST = 8  # index in the grid where the search starts: 0.1


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows with features φ (M,) of classes 0 … Y − 1."""

    gram: Floats  # (M, M) float64, Σφφᵀ
    cross: Floats  # (M, Y) float64, Σφyᵀ
    counts: Floats  # (Y,) float64, rows of each class

    def squared_error(self, values: Floats) -> float:
        """Return Σ‖y − Vᵀφ‖² over the rows for values V (M, Y)."""
        fitted = (values * (self.gram @ values)).sum() - 2 * (values * self.cross).sum()
        return max(0.0, float(self.counts.sum() + fitted))  # a perfect fit is rounded below 0


def add_product(total: Floats, a: Floats, b: Floats) -> None:
    """Add aᵀb to `total`, in its memory: a product of its own would be as large."""
    if total.size and len(a):  # BLAS refuses empty arrays; it stores columns, hence (aᵀb)ᵀ = bᵀa
        dgemm(1.0, b.T, a.T, beta=1.0, c=total.T, trans_b=True, overwrite_c=True)


def solve(gram: Floats, cross: Floats, lam: float) -> Floats | None:
    """Return V (M, Y) for λ = `lam`, or None where rounding left G + λI not positive definite."""
    system = gram.T.copy(order="F")  # which LAPACK overwrites; a copy in rows it would copy again
    system.ravel(order="K")[:: len(gram) + 1] += lam * float(gram.trace()) / len(gram)
    try:
        factor = cho_factor(system, overwrite_a=True)
    except LinAlgError:
        return None
    values: Floats = cho_solve(factor, cross)
    return values


def fit(learned: Moments, held: Moments) -> tuple[Floats, float]:
    """Return values (M, Y) from all rows, and the λ that was chosen by the held-out rows.

    It is the smallest λ of the grid whose squared error is within 5 % of the lowest. The lowest
    error itself asks for too large a λ when classes are many: shrinking all scores towards zero
    lowers it without changing which score is the highest.
    """
    gram, cross = learned.gram + held.gram, learned.cross + held.cross
    if float(gram.trace()) <= 0:
        return np.zeros_like(cross), _DEFAULT
    lam = _DEFAULT
    if float(learned.gram.trace()) > 0 and float(held.gram.trace()) > 0:

        def error(index: int) -> float:
            values = solve(learned.gram, learned.cross, GRID[index])
            return math.inf if values is None else held.squared_error(values)

        lam = GRID[select_lambda(error, len(GRID), TOLERANCE)]
    while (values := solve(gram, cross, lam)) is None:
        lam *= 10
    return values, lam


def select_lambda(error: Callable[[int], float], n: int, tolerance: float) -> int:
    """Return the last of n indices whose error is within `tolerance` of the lowest.

    The error falls and then rises with the index, slowly: its lowest value is searched for in wide
    steps and once more at the vertex of the parabola there, the border by halving. About six
    errors are computed.
    """
    seen: dict[int, float] = {}

    def evaluate_at(index: int) -> float:
        if index not in seen:
            seen[index] = error(index)
        return seen[index]

    best = min(_FIRST, n - 1)
    while True:
        near = [min(best + _DECADE, n - 1), max(best - _DECADE, 0)]
        lower = next((index for index in near if evaluate_at(index) < evaluate_at(best)), None)
        if lower is None:
            break
        best = lower
    if near == [best + _DECADE, best - _DECADE]:
        after, before = (evaluate_at(index) - evaluate_at(best) for index in near)
        if 0 < after + before < math.inf:
            evaluate_at(best + round(_DECADE / 2 * (before - after) / (before + after)))
    while True:
        limit = min(seen.values()) * (1 + tolerance)
        inside = max(index for index, value in seen.items() if value <= limit)
        outside = min((index for index in seen if index > inside), default=None)
        if inside == n - 1 or outside == inside + 1:
            return inside
        evaluate_at(min(inside + _DECADE, n - 1) if outside is None else (inside + outside) // 2)
