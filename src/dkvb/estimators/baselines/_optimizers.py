"""Steps of gradient descent for models side by side: every tensor has a leading model axis R.

Weights are changed in place, and settings are tensors (R, 1, 1), so that a CUDA graph of a step can
be replayed: what it reads and writes stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

LARGEST_NORM = 1.0  # of a model's gradient; longer ones are shortened to it
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True, eq=False)
class Rates:
    """How fast each model learns and how fast its weights decay, both (R, 1, 1)."""

    learning: Tensor
    decay: Tensor
    decays: bool  # whether any does


def shortening(gradients: Sequence[Tensor]) -> Tensor:
    """The factor (R, 1, 1) that brings each model's gradient, over all its weights, to norm 1."""
    norms = [torch.linalg.vector_norm(g, dim=(1, 2), keepdim=True) for g in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0) if norms[1:] else norms[0]
    factor: Tensor = LARGEST_NORM / (norm + 1e-6)
    return factor.clamp_(max=1.0)


def sgd(weights: Tensors, gradients: Sequence[Tensor], notes: Tensors, rates: Rates) -> None:
    """w ← w − η (g + decay·w), g shortened."""
    step = -rates.learning * shortening(gradients)
    for weight, gradient in zip(weights.values(), gradients, strict=True):
        if rates.decays:
            weight.mul_(1 - rates.learning * rates.decay)
        weight.addcmul_(gradient, step)


def adam(weights: Tensors, gradients: Sequence[Tensor], notes: Tensors, rates: Rates) -> None:
    """Kingma and Ba (2015) on g + decay·w, g shortened; its averages live in `notes`."""
    short = shortening(gradients)
    steps = notes["adam steps"].add_(1)  # (R, 1, 1) float64: 1 − β^t is small at first
    size = (rates.learning / (1 - _BETA_1**steps)).float()
    unbiased = (1 - _BETA_2**steps).sqrt_().float()
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        slope = gradient * short
        if rates.decays:
            slope.addcmul_(weight, rates.decay)
        mean, square = notes[f"adam mean of {name}"], notes[f"adam square of {name}"]
        mean.lerp_(slope, 1 - _BETA_1)
        square.mul_(_BETA_2).addcmul_(slope, slope, value=1 - _BETA_2)
        weight.sub_(size * mean / (square.sqrt() / unbiased + _EPSILON))


def adam_notes(weights: Tensors) -> Tensors:
    """What Adam remembers of one model's weights before its first step."""
    start = next(iter(weights.values()))
    notes = {"adam steps": torch.zeros((1, 1), dtype=torch.float64, device=start.device)}
    for name, weight in weights.items():
        notes[f"adam mean of {name}"] = torch.zeros_like(weight)
        notes[f"adam square of {name}"] = torch.zeros_like(weight)
    return notes


OPTIMIZERS = {"sgd": sgd, "adam": adam}
