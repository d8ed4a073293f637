"""Elastic weight consolidation (Kirkpatrick et al., 2017).

Task t with final weights θ_t adds ½·strength·Σ F_t (θ − θ_t)² to the loss, where F_t is the
diagonal of the Fisher information. The gradient of all terms is strength·(θ·ΣF_t − ΣF_t·θ_t): two
sums of the size of the weights for any number of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dkvb.baselines._optimizers import Tensors


class Layer(NamedTuple):
    """Inputs (R, b, m) and outputs (R, b, outputs) of a linear layer."""

    inputs: Tensor
    outputs: Tensor


class Signals(NamedTuple):
    """Result of a forward pass: logits (R, b, Y), and every linear layer by name."""

    logits: Tensor
    layers: Mapping[str, Layer]


def make_ewc_buffers(weights: Tensors) -> Tensors:
    """Return the two sums of one model, before its first task ends."""
    return {
        f"{kind} of {name}": torch.zeros_like(weight)
        for kind in ("precision", "pull")
        for name, weight in weights.items()
    }


def add_pull(
    gradients: Sequence[Tensor], weights: Tensors, buffers: Tensors, strength: Tensor
) -> None:
    """Add strength·(θ·ΣF − ΣF·θ_t) to gradients (R, ...); strength (R, 1, 1)."""
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        pull = weight * buffers[f"precision of {name}"] - buffers[f"pull of {name}"]
        gradient.addcmul_(pull, strength)


def fisher(signals: Signals) -> Tensors:
    """Return the diagonal of the Fisher information of each weight, summed over samples.

    The expectation over labels is under the model's own distribution, and exact. The gradient of a
    linear layer for one sample is inputs ⊗ δ, so that the squares are Σ inputs² ⊗ δ².
    """
    outputs = [layer.outputs for layer in signals.layers.values()]
    shares = signals.logits.detach().softmax(dim=2)  # (R, b, Y)
    squares = [torch.zeros_like(z) for z in outputs]  # E δ² per sample
    for column in range(shares.shape[2]):
        error = shares.clone()
        error[:, :, column] -= 1  # gradient of the loss for this label
        likely = shares[:, :, column, None]
        deltas = torch.autograd.grad(signals.logits, outputs, error, retain_graph=True)
        for square, delta in zip(squares, deltas, strict=True):
            square.addcmul_(likely, delta.square())
    result: Tensors = {}
    for (name, layer), square in zip(signals.layers.items(), squares, strict=True):
        inputs = layer.inputs.detach().square()
        result[f"{name} weight"] = inputs.transpose(1, 2) @ square  # (R, m, outputs)
        result[f"{name} bias"] = square.sum(dim=1, keepdim=True)  # (R, 1, outputs)
    return result
