"""Kernel functions of conditioned rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

RBF, ARC_COSINE = "rbf", "arc-cosine"
KERNELS = (RBF, ARC_COSINE)
BLOCK = 2048
SYMMETRIC_BLOCK = 512  # smaller: less is computed twice
MEDIAN_ROWS = 1000


def squared_distances(a: Tensor, b: Tensor, b_squares: Tensor | None = None) -> Tensor:
    """Squared distances (n, N) between rows a (n, p) and b (N, p), whose squared norms (N,) may be
    known."""
    squares = b.square().sum(dim=1) if b_squares is None else b_squares
    cross = torch.addmm(squares[None], a, b.T, alpha=-2)
    return cross.add_(a.square().sum(dim=1)[:, None]).clamp_(min=0)


def median_distance(rows: Tensor) -> float:
    """The median squared distance among the first rows of (n, p), 1 where all are equal."""
    rows = rows[:MEDIAN_ROWS]
    i, j = torch.triu_indices(len(rows), len(rows), offset=1, device=rows.device)
    pairs = squared_distances(rows, rows)[i, j]
    middle = float(pairs.median()) if len(pairs) else 0.0
    if middle <= 0 and len(pairs):  # more than half of the pairs are copies
        middle = float(pairs.mean())
    return middle if middle > 0 else 1.0


@dataclass(frozen=True)
class KernelFunction:
    """exp(−gamma·d²), or the arc-cosine kernel of order one (Cho and Saul, 2009)."""

    kind: str
    gamma: float = 0.0

    @classmethod
    def of(cls, kind: str, width: float, unit: float) -> KernelFunction:
        """The kernel of a width in units of a squared distance (see `median_distance`)."""
        return cls(RBF, width / unit) if kind == RBF else cls(ARC_COSINE)

    def __call__(self, a: Tensor, b: Tensor, b_squares: Tensor | None = None) -> Tensor:
        """The kernel matrix (n, N) of rows a (n, p) and b (N, p), whose squared norms (N,) may be
        known."""
        if self.kind == RBF:
            return squared_distances(a, b, b_squares).mul_(-self.gamma).exp_()
        b_squares = b.square().sum(dim=1) if b_squares is None else b_squares
        return self._arc_cosine(a @ b.T, a.norm(dim=1)[:, None] * b_squares.sqrt())

    def of_distances(self, squared: Tensor, a_squares: Tensor, b_squares: Tensor) -> Tensor:
        """The kernel matrix (n, N) from squared distances (n, N), which are overwritten, and the
        squared norms of rows a (n,) and b (N,)."""
        if self.kind == RBF:
            return squared.mul_(-self.gamma).exp_()
        cross = squared.neg_().add_(a_squares[:, None] + b_squares).div_(2)
        return self._arc_cosine(cross, a_squares.sqrt()[:, None] * b_squares.sqrt())

    @staticmethod
    def _arc_cosine(cross: Tensor, norms: Tensor) -> Tensor:
        """From products of rows (n, N), which are overwritten, and of their norms (n, N)."""
        cosine = cross.div_(norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp_(-1, 1)
        sine = (1 - cosine.square()).sqrt_()
        kernel: Tensor = norms * (sine + (math.pi - torch.arccos(cosine)) * cosine) / math.pi
        return kernel

    def with_nearest(self, a: Tensor, b: Tensor, b_squares: Tensor) -> tuple[Tensor, Tensor]:
        """The kernel matrix (n, N), and the squared distance (n,) from rows a (n, p) to the nearest
        of b (N, p), from the same distances."""
        distances = squared_distances(a, b, b_squares)
        nearest = distances.amin(dim=1)
        return self.of_distances(distances, a.square().sum(dim=1), b_squares), nearest

    def matrix(self, a: Tensor) -> Tensor:
        """The kernel matrix (n, n) of rows a (n, p) with themselves, computed in blocks of rows."""
        result = a.new_empty((len(a), len(a)))
        squares = a.square().sum(dim=1)
        for i in range(0, len(a), SYMMETRIC_BLOCK):
            end = i + SYMMETRIC_BLOCK
            part = self(a[i:end], a[:end], squares[:end])
            result[i:end, :end] = part
            result[:i, i:end] = part[:, :i].T
        return result

    def diagonal(self, a: Tensor) -> Tensor:
        """k(x, x) of each row (n,)."""
        return torch.ones_like(a[:, 0]) if self.kind == RBF else a.square().sum(dim=1)
