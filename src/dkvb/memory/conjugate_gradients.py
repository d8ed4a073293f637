"""Solving for every point, where these are more than a factorisation takes: by conjugate gradients.

The preconditioner is the Nyström approximation of the kernel from landmark points, as in FALKON
(Rudi, Carratino and Rosasco, 2017). The kernel matrix is kept in float32 where it fits in memory,
and computed again block by block in every step where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from tqdm import tqdm

from dkvb._support.memory import free_memory
from dkvb.memory.inverse import NotPositiveDefinite, cholesky
from dkvb.memory.kernel import rbf, self_similarity, spread_factors, squared_norms
from dkvb.memory.points import Points

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

TOLERANCE = 1e-3  # of the residual, relative to the right-hand side
MOST_STEPS = 200
LANDMARKS = 2048  # of the preconditioner
BLOCK = 2048
_SHARE = 0.7  # of the free memory that a stored kernel matrix may take
_JITTER = 1e-6


@dataclass(frozen=True, eq=False)
class KernelOperator:
    """K of N points as a linear operator, less what its diagonal has beyond s², and its noise."""

    z: F32  # (N, p)
    squares: F32  # (N,)
    factors: F32  # (N,) what spread takes
    gamma: float
    noise: F32  # (N,) λ/n, and what two rows of a point have in common beyond their means
    matrix: F32 | None  # (N, N) where it is stored

    @classmethod
    def of(cls, points: Points, gamma: float, noise: float) -> KernelOperator:
        """The operator of points; its matrix is stored if it fits."""
        n, factors = len(points), spread_factors(points.spread, gamma)
        own = self_similarity(points.spread, points.counts, gamma) - factors**2
        diagonal = (noise / points.counts + own).astype(np.float32)
        z = points.z
        made = cls(z, squared_norms(z), factors.astype(np.float32), gamma, diagonal, None)
        free = free_memory()
        if free is not None and 4 * n * n > _SHARE * free:
            return made
        matrix = np.empty((n, n), np.float32)
        for i in range(0, n, BLOCK):
            end = min(i + BLOCK, n)
            matrix[i:end, :end] = made.block(slice(i, end), slice(0, end))
            matrix[:i, i:end] = matrix[i:end, :i].T
        return cls(z, made.squares, made.factors, gamma, diagonal, matrix)

    def block(self, rows: Any, columns: Any) -> F32:
        """Some rows and columns of K."""
        part = rbf(self.z[rows], self.z[columns], self.gamma, self.squares[columns])
        part *= self.factors[columns]
        part *= self.factors[rows, None]
        return part

    def factor(self, more_noise: Sequence[float]) -> F32:
        """The lower factor (N, N) in float32, with a little more noise where rounding makes the
        matrix indefinite: a preconditioner all the same."""
        for more in (0.0, *more_noise):
            whole = slice(None)
            matrix = self.block(whole, whole) if self.matrix is None else self.matrix
            matrix = matrix.copy(order="F")
            matrix[np.diag_indices(len(matrix))] += self.noise + np.float32(more)
            try:
                found: F32 = cholesky(matrix)
            except NotPositiveDefinite:
                continue
            return found
        raise NotPositiveDefinite

    def __matmul__(self, b: F32) -> F32:
        """(K + diag(noise)) b for b (N, k)."""
        found = np.empty_like(b)
        if self.matrix is not None:
            np.matmul(self.matrix, b, out=found)
        else:
            for i in range(0, len(b), BLOCK):
                part = slice(i, i + BLOCK)
                found[part] = self.block(part, slice(None)) @ b
        found += self.noise[:, None] * b
        return found


def preconditioner(kernel: KernelOperator, landmarks: Places) -> Callable[[F32], F32]:
    """R → (Nyström approximation of K + μ·I)⁻¹ R, μ the noise and what the approximation misses."""
    corner = np.asfortranarray(kernel.block(landmarks, landmarks), dtype=np.float64)
    corner[np.diag_indices(len(landmarks))] += _JITTER * len(landmarks)
    lower = cholesky(corner).astype(np.float32)
    columns = np.empty((len(landmarks), len(kernel.z)), np.float32)
    for i in range(0, len(kernel.z), BLOCK):
        columns[:, i : i + BLOCK] = kernel.block(landmarks, slice(i, i + BLOCK))
    # K ≈ FᵀF with features F (M, N)
    features = solve_triangular(lower, columns, lower=True, overwrite_b=True, check_finite=False)
    missed = float((kernel.factors**2).mean() - np.einsum("ij,ij->j", features, features).mean())
    mu = float(kernel.noise.mean()) + max(missed, 0.0)
    inner = np.asfortranarray(features @ features.T, dtype=np.float64)
    inner[np.diag_indices(len(inner))] += mu
    inner = cholesky(inner).astype(np.float32)

    def apply(r: F32) -> F32:
        # Woodbury's identity.
        inside = cho_solve((inner, True), features @ r, check_finite=False)
        found: F32 = (r - features.T @ inside) / np.float32(mu)
        return found

    return apply


def conjugate_gradients(
    kernel: KernelOperator,
    b: F32,
    precondition: Callable[[F32], F32],
    progress: bool = False,
    tolerance: float = TOLERANCE,
) -> tuple[F32, int, float]:
    """x (N, k) with (K + diag(noise)) x = b, the number of steps, and the relative residual.

    A column that is solved for is left alone while others go on.
    """
    x, r = np.zeros_like(b), b.copy()
    z = precondition(r)
    p = z.copy()
    rz = (r * z).sum(axis=0)
    size = np.maximum(np.sqrt((b * b).sum(axis=0)), np.finfo(np.float32).tiny)
    steps, residual = 0, 1.0
    # Where nobody looks, in a pipe, tqdm turns itself off.
    shown = None if progress else True
    with tqdm(desc="solving", unit="step", disable=shown, leave=False) as bar:
        while steps < MOST_STEPS and residual >= tolerance:
            steps += 1
            ap = kernel @ p
            curvature = (p * ap).sum(axis=0)
            length = np.where(curvature > 0, rz / np.where(curvature > 0, curvature, 1), 0)
            x += length * p
            r -= length * ap
            residual = float((np.sqrt((r * r).sum(axis=0)) / size).max())
            z = precondition(r)
            after = (r * z).sum(axis=0)
            p *= np.where(rz > 0, after / np.where(rz > 0, rz, 1), 0)
            p += z
            rz = after
            bar.update()
            bar.set_postfix_str(f"residual {residual:.1e} of {tolerance:.0e}")
    return x, steps, residual
