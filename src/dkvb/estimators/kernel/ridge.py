"""Exact kernel ridge regression: one factor of the inverse gives values and leave-one-out.

With A = K + diag(noise) the factor W satisfies A⁻¹ = WᵀW. Values are α = A⁻¹Y, and the prediction
for row i by all rows but i is yᵢ − αᵢ / [A⁻¹]ᵢᵢ. More rows and changed noise add rows to W, which
costs O(N²) each and solves nothing again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

# in units of the mean diagonal of K
LAMBDAS: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
BLOCK = 8192  # columns of a triangular inverse at a time
TEMPERATURES = (3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)  # that scores are multiplied by
EQUAL = 0.5  # standard errors by which accuracies may differ and are taken for equal
KEPT_ROWS = 6000  # up to which the solution with the best λ is kept
GRID_ROWS = 1000  # up to which all λ are tried, instead of those around the best so far

T = TypeVar("T")

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
        # The matrix is symmetric, so its transpose is the same in LAPACK's order of memory.
        a = np.array(kernel.numpy().T, order="F")
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


@dataclass(frozen=True)
class LeaveOneOut:
    """How well the other rows predict each row, both measures averaged over classes."""

    accuracy: float
    log_loss: float  # of the best of a few temperatures

    def doubt(self, n: float) -> float:
        """The standard error of the accuracy among n examples, never zero."""
        right = (self.accuracy * n + 1) / (n + 2)
        return float((right * (1 - right) / n) ** 0.5)


def select_best(tried: Mapping[T, LeaveOneOut], n: float) -> T:
    """The setting with the lowest log loss among those of the highest accuracy among n examples.

    Accuracies that differ by less than half a standard error are taken for equal: which of them is
    highest is mostly chance, and the log loss, which looks at every score, tells more.
    """
    highest = max(tried.values(), key=lambda one: one.accuracy)
    enough = highest.accuracy - EQUAL * highest.doubt(n) - 1e-12
    equal = [setting for setting, one in tried.items() if one.accuracy >= enough]
    return min(equal, key=lambda setting: tried[setting].log_loss)


class Solved(NamedTuple):
    """A factor of the inverse, values (N, Y), and the diagonal of the inverse (N,)."""

    inverse: Inverse
    alpha: Tensor
    diagonal: Tensor


def try_lambdas(
    kernel: Tensor, targets: Tensor, weights: Tensor, start: float
) -> tuple[dict[float, LeaveOneOut], Solved | None]:
    """What leave-one-out says of each λ: of all with few rows, else of those around the best; and,
    unless there are many rows, the solution with the best λ.

    The search climbs from `start`.
    """
    unit = float(kernel.diagonal().mean())
    n = float(weights.sum())
    tried: dict[float, LeaveOneOut] = {}
    best: tuple[float, Solved] | None = None
    place = LAMBDAS.index(start)
    wanted = slice(None) if len(kernel) <= GRID_ROWS else slice(max(0, place - 1), place + 2)
    while missing := [one for one in LAMBDAS[wanted] if one not in tried]:
        for one in missing:
            try:
                solved = Solved(*Inverse.solve(kernel, one * unit / weights, targets))
            except NotPositiveDefinite:
                tried[one] = LeaveOneOut(0.0, math.inf)
                continue
            tried[one] = _leave_one_out(solved, targets, weights)
            if len(kernel) <= KEPT_ROWS and select_best(tried, n) == one:
                best = one, solved
        place = LAMBDAS.index(select_best(tried, n))
        wanted = slice(max(0, place - 1), place + 2)
    return tried, best[1] if best is not None and best[0] == LAMBDAS[place] else None


def _leave_one_out(solved: Solved, targets: Tensor, weights: Tensor) -> LeaveOneOut:
    """Leave-one-out of a solution."""
    mass = targets * weights[:, None]  # (N, Y) copies of each class
    present = mass.sum(dim=0) > 0
    mass = mass[:, present]
    total = mass.sum(dim=0)
    left_out = targets - solved.alpha / solved.diagonal[:, None]
    scores = left_out[:, present] * class_factors(total)
    right = torch.nn.functional.one_hot(scores.argmax(dim=1), len(total))
    losses = [
        -float(((scores * t).log_softmax(dim=1) * mass).sum(dim=0).div(total).mean())
        for t in TEMPERATURES
    ]
    return LeaveOneOut(float((right * mass).sum(dim=0).div(total).mean()), min(losses))
