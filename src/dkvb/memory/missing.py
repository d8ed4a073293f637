"""Targets that nobody said: filled so that their rows have no influence on the column.

With α = A⁻¹y, a row has no influence where its α is 0. The numbers δ to add to unsaid targets M
solve (A⁻¹)_MM δ = −α_M, which conjugate gradients do, each column for itself and all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Of the largest α in a column, that is left where none should be, by the precision of α.
EXACT = {8: 1e-10, 4: 1e-5}
MOST_STEPS = 200


def without_influence(
    solve: Callable[[F64], Any], values: F64, missing: Mask, diagonal: F64 | None = None
) -> F64:
    """Values α (N, T) that are 0 where targets are missing (N, T), from those for any targets
    there.

    `solve` gives A⁻¹b for b (N, T); the diagonal (N,) of A⁻¹, if it is known, saves steps.
    """
    enough = EXACT[values.dtype.itemsize] * np.abs(values).max(axis=0)
    by = np.ones(len(values)) if diagonal is None else diagonal
    found: F64 = values.astype(np.float64)
    residual = np.where(missing, -found, 0)
    step, before = np.zeros_like(residual), np.ones(values.shape[1])
    for number in range(MOST_STEPS):
        if (np.abs(residual).max(axis=0) <= enough).all():
            break
        towards = residual / by[:, None]
        length = np.einsum("ij,ij->j", residual, towards)
        step = towards + step * (length / np.where(before > 0, before, 1.0) if number else 0.0)
        moved = np.asarray(solve(step), np.float64)
        bent = np.einsum("ij,ij->j", step, moved)
        rate = np.where(bent > 0, length / np.where(bent > 0, bent, 1.0), 0.0)
        found += rate * moved
        residual = np.where(missing, -found, 0)
        before = length
    return np.where(missing, 0.0, found)
