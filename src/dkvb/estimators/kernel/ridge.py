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

LAMBDAS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the mean diagonal of K
BLOCK = 8192  # columns of a triangular inverse at a time
FEW_PER_CLASS = 5  # examples up to which λ within a whole standard error are as good
GRID_ROWS = 1000  # up to which all λ are tried, instead of those around the best so far

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
    return _triangular_inverse(factor)


def _triangular_inverse(lower: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix, in blocks of columns: zeros are not computed."""
    n = len(lower)
    inverse = torch.zeros_like(lower)
    for start in range(0, n, BLOCK):
        width = min(BLOCK, n - start)
        eye = torch.eye(n - start, width, dtype=lower.dtype, device=lower.device)
        inverse[start:, start : start + width] = torch.linalg.solve_triangular(
            lower[start:, start:], eye, upper=False
        )
    return inverse


@dataclass(frozen=True, eq=False)
class Inverse:
    """A⁻¹ = WᵀW for N rows, as a base of N₀ rows and rows of W that were added since."""

    base: Tensor  # (r, N₀)
    added: Tensor  # (t, N)

    @classmethod
    def solve(
        cls, kernel: Tensor, noise: Tensor, targets: Tensor
    ) -> tuple[Inverse, Tensor, Tensor]:
        """The inverse of kernel (N, N) + diag(noise), α = A⁻¹·targets (N, Y), and its diagonal."""
        base = inverse_factor(kernel, noise)
        alpha = base.T @ (base @ targets)
        diagonal = torch.linalg.vector_norm(base, dim=0).square()
        return cls(base, base.new_zeros((0, len(base)))), alpha, diagonal

    def __len__(self) -> int:
        return self.added.shape[1]

    def __matmul__(self, b: Tensor) -> Tensor:
        """A⁻¹b for b (N, k)."""
        n = self.base.shape[1]
        product = self.added.T @ (self.added @ b)
        product[:n] += self.base.T @ (self.base @ b[:n])
        return product

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


def class_factors(counts: Tensor) -> Tensor:
    """What scores of each class (Y,) are multiplied by: 1 / √count, 1 on average.

    A class without examples has the factor 0.
    """
    present = counts > 0
    factors = torch.where(present, counts.double().clamp(min=1) ** -0.5, 0.0)
    return factors / factors.sum().clamp(min=1e-300) * present.sum()


def select_lambda(
    kernel: Tensor, targets: Tensor, weights: Tensor, start: float
) -> tuple[float, float]:
    """The λ with the highest leave-one-out balanced accuracy, and that accuracy.

    With few rows all λ are tried, scores are smoothed over neighbours, so that single rows decide
    less, and λ is in the middle of those that cannot be told apart; with many, the search climbs
    from `start`.
    """
    unit = float(kernel.diagonal().mean())
    factors = class_factors((targets * weights[:, None]).sum(dim=0))
    scores: dict[int, float] = {-1: -1.0, len(LAMBDAS): -1.0}
    place = LAMBDAS.index(start)
    few = len(kernel) <= GRID_ROWS
    wanted = list(range(len(LAMBDAS))) if few else [place - 1, place, place + 1]
    while wanted:
        for tried in wanted:
            if tried not in scores:
                scores[tried] = _score(kernel, LAMBDAS[tried] * unit, targets, weights, factors)
        best = max(wanted, key=lambda i: (scores[i], i))
        wanted = [] if few or best == place else [best - 1, best, best + 1]
        place = best
    if not few:
        return LAMBDAS[place], scores[place]
    whole = [scores[i] for i in range(len(LAMBDAS))]
    before, after = [whole[0], *whole[:-1]], [*whole[1:], whole[-1]]
    smooth = [(a + 2 * b + c) / 4 for a, b, c in zip(before, whole, after, strict=True)]
    enough = max(smooth) - _tolerance(max(smooth), targets, weights) - 1e-12
    good = [i for i in range(len(LAMBDAS)) if smooth[i] >= enough]
    place = good[len(good) // 2]
    return LAMBDAS[place], smooth[place]


def _tolerance(score: float, targets: Tensor, weights: Tensor) -> float:
    """How far below the best leave-one-out accuracy λ are as good: one standard error with few
    examples per class, which cannot tell them apart, and less with more of them."""
    mass = (targets * weights[:, None]).sum(dim=0)
    n, n_classes = float(mass.sum()), int((mass > 0).sum())
    right = (score * n + 1) / (n + 2)  # never without doubt
    deviation = (right * (1 - right) / n) ** 0.5
    return float(min(1.0, FEW_PER_CLASS * n_classes / n) * deviation)


def _score(
    kernel: Tensor, noise: float, targets: Tensor, weights: Tensor, factors: Tensor
) -> float:
    """Leave-one-out balanced accuracy: the mean over classes of the share of their examples that
    the other rows give the highest score; 0 where the problem cannot be solved."""
    try:
        factor = inverse_factor(kernel, noise / weights)
    except NotPositiveDefinite:
        return 0.0
    alpha = factor.T @ (factor @ targets)
    diagonal = torch.linalg.vector_norm(factor, dim=0).square()
    best = ((targets - alpha / diagonal[:, None]) * factors).argmax(dim=1)
    mass = targets * weights[:, None]  # (N, Y) copies of each class
    right = (torch.nn.functional.one_hot(best, targets.shape[1]) * mass).sum(dim=0)
    total = mass.sum(dim=0)
    return float((right / total.clamp(min=1e-300))[total > 0].mean())
