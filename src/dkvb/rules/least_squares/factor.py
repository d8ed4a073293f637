"""Factors of G + λI, with which systems of equations are solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dkvb.rules.least_squares.sums import diagonal, stripes

_LARGEST = 1e6  # λ, in units of the mean of diag(G), beyond which no rounding explains a failure
_IMPOSSIBLE = "sums: expected those of some rows; got impossible ones"


class Factor(Protocol):
    """A positive definite matrix A (M, M), in a form that makes solving cheap."""

    def solve(self, right: Tensor) -> Tensor:
        """A⁻¹B (M, k) for B (M, k)."""
        ...


@dataclass(frozen=True, eq=False)
class Cholesky:
    """Upper triangular U with UᵀU = A, in stripes as sums of products are.

    The square blocks on the diagonal are inverted, so that solving needs products alone.
    """

    packed: Tensor  # (T,) float32 or float64
    n: int

    def solve(self, right: Tensor) -> Tensor:
        """A⁻¹B (n, k) for B (n, k), about 2·n²·k operations."""
        found = right.to(self.packed.dtype, copy=True, memory_format=torch.contiguous_format)
        parts = [
            (start, start + len(stripe), stripe) for start, stripe in stripes(self.packed, self.n)
        ]
        for start, stop, stripe in parts:  # Uᵀ·found = B
            inverse, beside = stripe[:, : stop - start], stripe[:, stop - start :]
            found[start:stop] = inverse.T @ found[start:stop]
            found[stop:].addmm_(beside.T, found[start:stop], alpha=-1)
        for start, stop, stripe in reversed(parts):  # U·solution = found
            inverse, beside = stripe[:, : stop - start], stripe[:, stop - start :]
            found[start:stop] = inverse @ found[start:stop].addmm_(beside, found[stop:], alpha=-1)
        return found


@dataclass(frozen=True, eq=False)
class SpanFactor:
    """A = O·T·Oᵀ + λI for orthonormal O (M, r) with r far below M, and a factor of T + λI."""

    basis: Tensor  # (M, r)
    inner: Tensor  # (r, r), lower triangular
    penalty: float

    def solve(self, right: Tensor) -> Tensor:
        """A⁻¹B (M, k) for B (M, k), about 4·M·r·k operations."""
        inside = self.basis.T @ right  # (r, k)
        solved = torch.cholesky_solve(inside, self.inner)
        return torch.addmm(right, self.basis, self.penalty * solved - inside).div_(self.penalty)


def cholesky(packed: Tensor, n: int) -> Cholesky | None:
    """The factor of a matrix (n, n) in stripes, which are overwritten; None where the matrix is not
    positive definite. About n³/3 operations, and no memory but that of a stripe."""
    rows = list(stripes(packed, n))
    for place, (start, stripe) in enumerate(rows):
        s = len(stripe)
        square, beside = stripe[:, :s], stripe[:, s:]
        factor, failed = torch.linalg.cholesky_ex(square, upper=True)
        if bool(failed):
            return None
        identity = torch.eye(s, dtype=packed.dtype, device=packed.device)
        square.copy_(torch.linalg.solve_triangular(factor, identity, upper=True))
        beside.copy_(square.T @ beside)
        for later, other in rows[place + 1 :]:
            right = beside[:, later - start - s :]  # (s, n - later)
            other.addmm_(right[:, : len(other)].T, right, alpha=-1)
    return Cholesky(packed, n)


def factorise(
    gram: Tensor, n: int, penalty: float, dtype: torch.dtype = torch.float64
) -> tuple[Cholesky, float]:
    """A factor of G + λI and its λ, which is `penalty`, or larger where rounding left G a little
    below positive; G (n, n) is in stripes and stays as it is."""
    mean = float(diagonal(gram, n).mean())
    while 0 < penalty <= _LARGEST * mean:
        packed = gram.to(dtype, copy=True)
        for _, stripe in stripes(packed, n):
            stripe.diagonal().add_(penalty)
        factor = cholesky(packed, n)
        if factor is not None:
            return factor, penalty
        penalty *= 10
    raise ValueError(_IMPOSSIBLE)


def factorise_dense(gram: Tensor, penalty: float) -> tuple[Tensor, float]:
    """The same for a square matrix G (n, n): a lower triangular factor, and λ."""
    mean = float(gram.diagonal().mean())
    while 0 < penalty <= _LARGEST * mean:
        system = gram.clone()
        system.diagonal().add_(penalty)
        factor, failed = torch.linalg.cholesky_ex(system)
        if not bool(failed):
            return factor, penalty
        penalty *= 10
    raise ValueError(_IMPOSSIBLE)
