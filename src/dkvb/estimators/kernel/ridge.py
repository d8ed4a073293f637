"""Exact kernel ridge regression: one factor of the inverse gives values and leave-one-out.

With A = K + diag(noise) the factor W satisfies A⁻¹ = WᵀW. Values are α = A⁻¹Y, and the prediction
for row i by all rows but i is yᵢ − αᵢ / [A⁻¹]ᵢᵢ. More rows and changed noise add rows to W, which
costs O(N²) each and solves nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

_LAPACK: dict[torch.dtype, Any] = {
    torch.float64: (lapack.dpotrf, lapack.dtrtri),
    torch.float32: (lapack.spotrf, lapack.strtri),
}


class NotPositiveDefinite(ArithmeticError):
    """The kernel matrix with its noise has no Cholesky factor in this precision."""


def inverse_factor(kernel: Tensor, noise: Tensor) -> Tensor:
    """W (N, N), lower triangular, with WᵀW = (kernel + diag(noise))⁻¹."""
    if kernel.device.type == "cpu":
        # LAPACK's triangular inverse: torch has none, and solving for the identity is 3 × the work.
        a = np.array(kernel.numpy(), order="F")  # a copy, in LAPACK's order of memory
        a[np.diag_indices(len(a))] += noise.numpy()
        factorise, invert = _LAPACK[kernel.dtype]
        lower, failed = factorise(a, lower=1, overwrite_a=1, clean=1)
        if not failed:
            w, failed = invert(lower, lower=1, overwrite_c=1)
        if failed:
            raise NotPositiveDefinite
        return torch.from_numpy(w)
    system = kernel.clone()
    system.diagonal().add_(noise)
    factor, info = torch.linalg.cholesky_ex(system)
    if bool(info):
        raise NotPositiveDefinite
    del system
    eye = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, eye, upper=False)
    return inverse


@dataclass(frozen=True, eq=False)
class Inverse:
    """A⁻¹ = WᵀW for N rows, as a base of N₀ rows and rows of W that were added since."""

    base: Tensor  # (r, N₀)
    added: Tensor  # (t, N)

    @classmethod
    def of(cls, kernel: Tensor, noise: Tensor) -> Inverse:
        """The inverse of kernel (N, N) + diag(noise)."""
        base = inverse_factor(kernel, noise)
        return cls(base, base.new_zeros((0, len(base))))

    def __len__(self) -> int:
        return self.added.shape[1]

    def __matmul__(self, b: Tensor) -> Tensor:
        """A⁻¹b for b (N, k)."""
        n = self.base.shape[1]
        product = self.added.T @ (self.added @ b)
        product[:n] += self.base.T @ (self.base @ b[:n])
        return product

    def diagonal(self) -> Tensor:
        """The diagonal of A⁻¹ (N,)."""
        diagonal = self.added.square().sum(dim=0)
        diagonal[: self.base.shape[1]] += torch.einsum("ij,ij->j", self.base, self.base)
        return diagonal

    def appended(self, cross: Tensor, corner: Tensor) -> tuple[Inverse, Tensor]:
        """The inverse for t more rows, and the rows V (t, N + t) that were added to W.

        `cross` (N, t) is the kernel of old and new rows, `corner` (t, t) that of the new ones with
        their noise.
        """
        u = self @ cross
        lower, failed = torch.linalg.cholesky_ex(corner - cross.T @ u)
        if bool(failed):
            raise NotPositiveDefinite
        eye = torch.eye(len(corner), dtype=u.dtype, device=u.device)
        rows = torch.linalg.solve_triangular(lower, torch.cat([u.T, -eye], dim=1), upper=False)
        padded = torch.nn.functional.pad(self.added, (0, len(corner)))
        return Inverse(self.base, torch.cat([padded, rows])), rows

    def reweighted(self, row: int, change: float) -> tuple[Inverse, Tensor, Tensor]:
        """The inverse where the noise of one row has become smaller by −`change`, the column of
        the old inverse (N,), and the row V (1, N) that was added to W."""
        unit = self.added.new_zeros((len(self), 1))
        unit[row] = 1
        column = (self @ unit)[:, 0]
        scale = -change / (1 + change * float(column[row]))
        if scale < 0:
            raise NotPositiveDefinite
        added = (column * scale**0.5)[None]
        return Inverse(self.base, torch.cat([self.added, added])), column, added

    def folded(self, most: int) -> Inverse:
        """The same with all rows in the base, where more than `most` were added."""
        if len(self.added) <= most:
            return self
        wide = torch.nn.functional.pad(self.base, (0, len(self) - self.base.shape[1]))
        return Inverse(torch.cat([wide, self.added]), self.added[:0])


def leave_one_out(alpha: Tensor, diagonal: Tensor, targets: Tensor) -> Tensor:
    """What the others predict for each row (N, Y): targets (N, Y) − α (N, Y) / diag A⁻¹ (N,)."""
    return targets - alpha / diagonal[:, None]
