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
_ASCENT_RATE = 0.01
# Random members: so many that those of a problem of few samples take about a second.
_MOST_MEMBERS, _MEMBER_BUDGET = 2000, 10**8


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
    steps: int = 300,
    starts: int = 3,
    seed: int = 0,
    signs: Tensor | None = None,
) -> Tensor:
    """Return a lower bound of sup over f of Σ_i ξ_i · loss_i for one draw of signs ξ: (J,).

    Problems are batched: samples x (J, r, m), class indices y (J, r), and a mask (J, r) of the
    samples that exist. The functions are linear probes, or MLPs with `hidden` units, without bias,
    whose weights have Frobenius norm at most `radius` per layer. The loss is 1 if another class has
    a higher score than y, and 0 otherwise.

    The largest value over random members of the class and over all iterates of gradient ascents
    (Adam on the softmax probability) is returned. Small problems are searched with so many random
    members that the bound is in effect the supremum. The first ascent starts from an output layer
    of zeros, a member of the class whose loss is 0 for every sample. The bound is therefore never
    negative.

    Parameters
    ----------
    steps : int, default=300
        Steps of ascent per start.
    starts : int, default=3
        Number of ascents: one from zero, the others from random weights.
    seed : int, default=0
        Random seed of the signs and of the starts.
    signs : Tensor (J, r), optional
        Signs to use instead of drawing them.
    """
    J, _, m = x.shape
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.randint(0, 2, y.shape, generator=generator) * 2 - 1).to(x.device)
    signs = (drawn if signs is None else signs.to(x.device)) * mask
    sizes = (m, n_classes) if hidden is None else (m, hidden, n_classes)

    def draw() -> list[Tensor]:
        layers = [
            (torch.randn(J, a, b, generator=generator) / math.sqrt(a)).to(x.device)
            for a, b in pairwise(sizes)
        ]
        for layer in layers:
            _shorten(layer, radius)
        return layers

    best = torch.zeros(J, dtype=torch.float64, device=x.device)
    for start in range(starts):
        layers = draw()
        if start == 0:
            layers[-1].zero_()
        best = torch.maximum(best, _ascend(x, y, signs, layers, radius, steps))
    for _ in range(min(_MOST_MEMBERS, _MEMBER_BUDGET // max(1, x[0].numel() * J * n_classes))):
        best = torch.maximum(best, (signs * _wrong(_scores(x, draw()), y)).sum(dim=1))
    return best


def _ascend(
    x: Tensor, y: Tensor, signs: Tensor, layers: list[Tensor], radius: float, steps: int
) -> Tensor:
    """Return the largest Σ ξ · loss along an ascent from `layers`, per problem: (J,)."""
    layers = [layer.requires_grad_() for layer in layers]
    optimiser = torch.optim.Adam(layers, lr=_ASCENT_RATE)
    best = torch.full((len(x),), -math.inf, dtype=torch.float64, device=x.device)
    for step in range(steps + 1):
        scores = _scores(x, layers)
        best = torch.maximum(best, (signs * _wrong(scores.detach(), y)).sum(dim=1))
        if step == steps:
            break
        probability = scores.softmax(dim=2).gather(2, y[:, :, None])[:, :, 0]
        optimiser.zero_grad()
        (signs * probability).sum().backward()  # ascent on Σ ξ (1 − p)
        optimiser.step()
        with torch.no_grad():
            for layer in layers:
                _shorten(layer, radius)
    return best


def _wrong(scores: Tensor, y: Tensor) -> Tensor:
    """Return 1 where another class has a higher score than y, else 0: (J, r) float64."""
    own = scores.gather(2, y[:, :, None])
    return (scores > own).any(dim=2).double()


def _shorten(layer: Tensor, radius: float) -> None:
    """Scale weights (J, a, b) to norm at most `radius`, in place."""
    norm = layer.flatten(1).norm(dim=1)[:, None, None]
    layer.mul_((radius / norm.clamp(min=1e-12)).clamp(max=1.0))


def _scores(x: Tensor, layers: list[Tensor]) -> Tensor:
    for layer in layers[:-1]:
        x = (x @ layer).relu()
    return x @ layers[-1]
