"""The terms of the paper's Theorem 1, estimated from data.

The loss is the share of wrong answers, so that M = 1. A cell is what the theorem calls a key: the
rows whose codes are the same in every codebook considered.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

CONFIDENCE = 0.05  # δ


def cells(codes: Tensor, columns: Tensor) -> Tensor:
    """The number of each row's cell and class together (n,), of codes (n, C) and labels (n,).

    >>> cells(torch.tensor([[0, 1], [0, 1], [0, 2]]), torch.tensor([0, 1, 0]))
    tensor([0, 1, 2])
    """
    table = torch.cat([codes.to(torch.int32), columns[:, None].to(torch.int32)], dim=1)
    numbers: Tensor = torch.unique(table, dim=0, return_inverse=True)[1]
    return numbers


class Constant(NamedTuple):
    """How the theorem's constant depends on the codebooks, with a bound's term at δ = 0.05."""

    occupied: int  # cells with rows, counted for each class
    constant: float  # M · Σ√p · √max(1, ln(|Y|·|K|)), with shares p of the rows
    term: float  # constant · √(2 ln(2e/δ) / n)


def constant(codes: Tensor, columns: Tensor, n_pairs: int, n_classes: int) -> Constant:
    """The constant c of the theorem for these codebooks, as its proof bounds it (equation 3)."""
    n, C = codes.shape
    share = torch.bincount(cells(codes, columns)).double() / n
    log_count = math.log(n_classes) + C * math.log(n_pairs)
    value = float(share.sqrt().sum()) * math.sqrt(max(1.0, log_count))
    term = value * math.sqrt(2 * math.log(2 * math.e / CONFIDENCE) / n)
    return Constant(len(share), value, term)


def common_null_space(matrices: Tensor) -> Tensor:
    """An orthonormal basis (m, q) of what all projections (C, m, d) send to zero; q may be 0."""
    wide = matrices.double().permute(1, 0, 2).flatten(1)  # (m, C·d)
    basis, sizes, _ = torch.linalg.svd(wide, full_matrices=True)
    rank = int((sizes > sizes[0] * wide.shape[0] * torch.finfo(torch.float64).eps).sum())
    null: Tensor = basis[:, rank:]
    return null


def rademacher(
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    *,
    n_classes: int,
    radius: float,
    hidden: int | None = None,
    steps: int = 100,
    seed: int = 0,
) -> Tensor:
    """E over signs ξ of sup over f of Σ_i ξ_i · loss_i, a problem each: (J,), one draw of signs.

    Problems lie side by side: rows x (J, r, m), labels y (J, r), mask (J, r) which rows there are.
    The class is that of linear probes, or of MLPs with `hidden` units, whose weights have norm at
    most `radius` a layer. The supremum is sought by gradient ascent on a smooth loss, and so is
    estimated from below; never below zero, which a constant answer reaches in expectation.
    """
    J, _, m = x.shape
    generator = torch.Generator().manual_seed(seed)
    signs = (torch.randint(0, 2, y.shape, generator=generator) * 2 - 1).to(x.device) * mask
    sizes = (m, n_classes) if hidden is None else (m, hidden, n_classes)
    layers = [
        (torch.randn(J, a, b, generator=generator) / math.sqrt(a)).to(x.device).requires_grad_()
        for a, b in pairwise(sizes)
    ]
    optimiser = torch.optim.Adam(layers, lr=0.05)
    for _ in range(steps):
        probability = _scores(x, layers).softmax(dim=2).gather(2, y[:, :, None])[:, :, 0]
        optimiser.zero_grad()
        (signs * probability).sum().backward()  # ascent on Σ ξ (1 − p)
        optimiser.step()
        with torch.no_grad():
            for layer in layers:
                norm = layer.flatten(1).norm(dim=1)[:, None, None]
                layer.mul_((radius / norm.clamp(min=1e-12)).clamp(max=1.0))
    with torch.no_grad():
        wrong = (_scores(x, layers).argmax(dim=2) != y).double()  # (J, r)
        return (signs * wrong).sum(dim=1)


def _scores(x: Tensor, layers: list[Tensor]) -> Tensor:
    for layer in layers[:-1]:
        x = (x @ layer).relu()
    return x @ layers[-1]
