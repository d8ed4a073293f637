"""Optimiser steps for several models: every tensor has a leading model axis R.

Weights change in place and hyperparameters are tensors (R, 1, 1), so that a CUDA graph of a step
can be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

MAX_NORM = 1.0  # of a model's gradient; longer ones are clipped
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True, eq=False)
class Rates:
    """Learning rate and weight decay of each model, both (R, 1, 1)."""

    learning: Tensor
    decay: Tensor
    decays: bool  # whether any decay is not zero


def clip_factor(gradients: Sequence[Tensor]) -> Tensor:
    """Return the factor (R, 1, 1) that clips the norm of each model's gradient."""
    norms = [torch.linalg.vector_norm(g, dim=(1, 2), keepdim=True) for g in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0) if norms[1:] else norms[0]
    factor: Tensor = MAX_NORM / (norm + 1e-6)
    return factor.clamp_(max=1.0)


def sgd(weights: Tensors, gradients: Sequence[Tensor], buffers: Tensors, rates: Rates) -> None:
    """Take a step of SGD: w ← w − η (g + decay·w) with clipped g."""
    step = -rates.learning * clip_factor(gradients)
    for weight, gradient in zip(weights.values(), gradients, strict=True):
        if rates.decays:
            weight.mul_(1 - rates.learning * rates.decay)
        weight.addcmul_(gradient, step)


def adam(weights: Tensors, gradients: Sequence[Tensor], buffers: Tensors, rates: Rates) -> None:
    """Take a step of Adam (Kingma and Ba, 2015) on g + decay·w with clipped g."""
    short = clip_factor(gradients)
    steps = buffers["adam steps"].add_(1)  # (R, 1, 1) float64: 1 − β^t is small at first
    size = (rates.learning / (1 - _BETA_1**steps)).float()
    unbiased = (1 - _BETA_2**steps).sqrt_().float()
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        slope = gradient * short
        if rates.decays:
            slope.addcmul_(weight, rates.decay)
        mean, square = buffers[f"adam mean of {name}"], buffers[f"adam square of {name}"]
        mean.lerp_(slope, 1 - _BETA_1)
        square.mul_(_BETA_2).addcmul_(slope, slope, value=1 - _BETA_2)
        weight.sub_(size * mean / (square.sqrt() / unbiased + _EPSILON))


def make_adam_buffers(weights: Tensors) -> Tensors:
    """Return Adam's state of one model before its first step."""
    start = next(iter(weights.values()))
    buffers = {"adam steps": torch.zeros((1, 1), dtype=torch.float64, device=start.device)}
    for name, weight in weights.items():
        buffers[f"adam mean of {name}"] = torch.zeros_like(weight)
        buffers[f"adam square of {name}"] = torch.zeros_like(weight)
    return buffers


OPTIMIZERS = {"sgd": sgd, "adam": adam}
