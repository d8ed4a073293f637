"""Kernel ridge regression by preconditioned conjugate gradients, for more rows than Cholesky takes.

The preconditioner is the Nyström approximation of the kernel from landmark rows, as in FALKON
(Rudi, Carratino and Rosasco, 2017). The kernel matrix is stored in float32, or computed again block
by block in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dkvb.estimators.kernel.functions import BLOCK, KernelFunction

TOLERANCE = 1e-3  # of the residual, relative to the right-hand side
MOST_STEPS = 200
_JITTER = 1e-6


@dataclass(frozen=True, eq=False)
class KernelOperator:
    """K as a linear operator: rows z (N, p), and the matrix (N, N) where it is stored."""

    function: KernelFunction
    z: Tensor  # (N, p) float32
    matrix: Tensor | None

    @classmethod
    def of(cls, function: KernelFunction, z: Tensor, stored: bool) -> KernelOperator:
        """The operator of rows z; each pair of blocks is computed once where it is stored."""
        if not stored:
            return cls(function, z, None)
        n = len(z)
        matrix = torch.empty((n, n), dtype=z.dtype, device=z.device)
        for i in range(0, n, BLOCK):
            for j in range(0, i + 1, BLOCK):
                block = function(z[i : i + BLOCK], z[j : j + BLOCK])
                matrix[i : i + BLOCK, j : j + BLOCK] = block
                if j < i:
                    matrix[j : j + BLOCK, i : i + BLOCK] = block.T
        return cls(function, z, matrix)

    def __matmul__(self, b: Tensor) -> Tensor:
        """Kb for b (N, k)."""
        if self.matrix is not None:
            return self.matrix @ b
        product = torch.empty_like(b)
        for i in range(0, len(self.z), BLOCK):
            product[i : i + BLOCK] = self.function(self.z[i : i + BLOCK], self.z) @ b
        return product

    def columns(self, which: Tensor) -> Tensor:
        """Some columns of K (N, k)."""
        if self.matrix is not None:
            return self.matrix[:, which]
        return self.function(self.z, self.z[which])


def preconditioner(
    kernel: KernelOperator, noise: float, landmarks: Tensor
) -> Callable[[Tensor], Tensor]:
    """R → (Nyström approximation of K + μ·I)⁻¹ R, μ the noise and what the approximation misses."""
    columns = kernel.columns(landmarks)  # (N, M)
    corner = columns[landmarks].double()
    unit = float(corner.diagonal().mean())
    corner.diagonal().add_(_JITTER * len(landmarks) * unit)
    lower = torch.linalg.cholesky(corner).to(columns.dtype)
    features = torch.linalg.solve_triangular(lower, columns.T, upper=False)  # (M, N): K ≈ FᵀF
    missed = kernel.function.diagonal(kernel.z).mean() - features.square().sum(dim=0).mean()
    mu = noise + max(float(missed), 0.0)
    inner = (features @ features.T).double()
    inner.diagonal().add_(mu)
    inner_lower = torch.linalg.cholesky(inner).to(columns.dtype)

    def apply(r: Tensor) -> Tensor:
        # Woodbury's identity.
        found: Tensor = (r - features.T @ torch.cholesky_solve(features @ r, inner_lower)) / mu
        return found

    return apply


def conjugate_gradients(
    kernel: KernelOperator,
    noise: Tensor,
    b: Tensor,
    precondition: Callable[[Tensor], Tensor],
) -> tuple[Tensor, int, float]:
    """x (N, k) with (K + diag(noise)) x = b, the number of steps, and the relative residual."""
    x = torch.zeros_like(b)
    r = b.clone()
    z = precondition(r)
    p = z.clone()
    rz = (r * z).sum(dim=0)
    size = b.norm(dim=0).clamp(min=torch.finfo(b.dtype).tiny)
    steps, residual = 0, 1.0
    while steps < MOST_STEPS and residual >= TOLERANCE:
        steps += 1
        ap = (kernel @ p).addcmul_(noise[:, None], p)
        curvature = (p * ap).sum(dim=0)
        length = torch.where(curvature > 0, rz / curvature, 0.0)
        x.addcmul_(length, p)
        r.addcmul_(-length, ap)
        residual = float((r.norm(dim=0) / size).max())
        z = precondition(r)
        rz_next = (r * z).sum(dim=0)
        p.mul_(torch.where(rz > 0, rz_next / rz, 0.0)).add_(z)
        rz = rz_next
    return x, steps, residual


def landmark_values(
    function: KernelFunction, z: Tensor, targets: Tensor, noise: float, landmarks: Tensor
) -> Tensor:
    """Values (M, Y) of the landmarks alone, from sums over all rows z (N, p)."""
    corner = function(z[landmarks].double(), z[landmarks].double())
    gram = torch.zeros_like(corner)
    moment = torch.zeros((len(landmarks), targets.shape[1]), dtype=corner.dtype, device=z.device)
    for i in range(0, len(z), BLOCK):
        block = function(z[i : i + BLOCK].double(), z[landmarks].double())
        gram.addmm_(block.T, block)
        moment.addmm_(block.T, targets[i : i + BLOCK].double())
    system = gram.add_(corner, alpha=noise)
    unit = float(system.diagonal().mean())
    system.diagonal().add_(1e-10 * unit)
    values: Tensor = torch.linalg.solve(system, moment)
    return values
