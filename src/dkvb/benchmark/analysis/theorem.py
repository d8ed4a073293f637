"""The terms of the paper's Theorem 1, estimated from data.

The loss is the error rate, so that M = 1. A cell is what the theorem calls a key: the samples with
equal codes in all codebooks considered.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

CONFIDENCE = 0.05  # δ


def number_cells(codes: Tensor, columns: Tensor) -> Tensor:
    """Return an index (n,) per distinct cell and class, from codes (n, C) and class indices (n,).

    >>> number_cells(torch.tensor([[0, 1], [0, 1], [0, 2]]), torch.tensor([0, 1, 0]))
    tensor([0, 1, 2])
    """
    table = torch.cat([codes.to(torch.int32), columns[:, None].to(torch.int32)], dim=1)
    numbers: Tensor = torch.unique(table, dim=0, return_inverse=True)[1]
    return numbers


class Constant(NamedTuple):
    """The theorem's constant for some codebooks, and its term in the bound at δ = 0.05."""

    occupied: int  # cells with samples, counted per class
    estimate_constant: float  # M · Σ√p · √max(1, ln(|Y|·|K|)), with shares p of the samples
    term: float  # constant · √(2 ln(2e/δ) / n)


def estimate_constant(codes: Tensor, columns: Tensor, n_pairs: int, n_classes: int) -> Constant:
    """Return the constant c of the theorem for these codebooks, as bounded in its proof (eq. 3)."""
    n, C = codes.shape
    share = torch.bincount(number_cells(codes, columns)).double() / n
    log_count = math.log(n_classes) + C * math.log(n_pairs)
    value = float(share.sqrt().sum()) * math.sqrt(max(1.0, log_count))
    term = value * math.sqrt(2 * math.log(2 * math.e / CONFIDENCE) / n)
    return Constant(len(share), value, term)


def find_common_null_space(matrices: Tensor) -> Tensor:
    """Return an orthonormal basis (m, q) of the common null space of projections (C, m, d)."""
    wide = matrices.double().permute(1, 0, 2).flatten(1)  # (m, C·d)
    basis, sizes, _ = torch.linalg.svd(wide, full_matrices=True)
    rank = int((sizes > sizes[0] * wide.shape[0] * torch.finfo(torch.float64).eps).sum())
    null: Tensor = basis[:, rank:]
    return null


def estimate_rademacher(
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
    """Estimate sup over f of Σ_i ξ_i · loss_i for one draw of signs ξ, per problem: (J,).

    Problems are batched: samples x (J, r, m), class indices y (J, r), and a mask (J, r) of the
    samples that exist. The functions are linear probes, or MLPs with `hidden` units, whose weights
    have norm at most `radius` per layer. Gradient ascent on a smooth loss estimates the supremum
    from below.
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
