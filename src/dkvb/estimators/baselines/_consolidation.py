"""Elastic weight consolidation (Kirkpatrick et al., 2017): weights that mattered are held back.

After task t with weights θ_t the loss gains ½·strength·Σ F_t (θ − θ_t)², F_t the diagonal of the
Fisher information. The gradient of all tasks' terms together is strength·(θ·ΣF_t − ΣF_t·θ_t): two
sums as large as the weights, however many tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dkvb.estimators.baselines._optimizers import Tensors


class Layer(NamedTuple):
    """What went into a linear layer (R, b, m) and what came out (R, b, outputs)."""

    inputs: Tensor
    outputs: Tensor


class Signals(NamedTuple):
    """A forward pass: logits (R, b, Y), and every linear layer by name."""

    logits: Tensor
    layers: Mapping[str, Layer]


def ewc_notes(weights: Tensors) -> Tensors:
    """The two sums of one model before its first task is over."""
    return {
        f"{kind} of {name}": torch.zeros_like(weight)
        for kind in ("precision", "pull")
        for name, weight in weights.items()
    }


def add_pull(
    gradients: Sequence[Tensor], weights: Tensors, notes: Tensors, strength: Tensor
) -> None:
    """Add strength·(θ·ΣF − ΣF·θ_t) to gradients (R, ...); strength (R, 1, 1)."""
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        pull = weight * notes[f"precision of {name}"] - notes[f"pull of {name}"]
        gradient.addcmul_(pull, strength)


def fisher(signals: Signals) -> Tensors:
    """The diagonal of the Fisher information of each weight, summed over the rows.

    The expectation over labels is that of the model itself, taken exactly. A row's gradient of a
    linear layer is inputs ⊗ δ, so that squares need no gradient a row: Σ inputs² ⊗ δ².
    """
    outputs = [layer.outputs for layer in signals.layers.values()]
    shares = signals.logits.detach().softmax(dim=2)  # (R, b, Y)
    squares = [torch.zeros_like(z) for z in outputs]  # E δ² of each row
    for column in range(shares.shape[2]):
        error = shares.clone()
        error[:, :, column] -= 1  # the gradient of the loss, were this the label
        likely = shares[:, :, column, None]
        deltas = torch.autograd.grad(signals.logits, outputs, error, retain_graph=True)
        for square, delta in zip(squares, deltas, strict=True):
            square.addcmul_(likely, delta.square())
    found: Tensors = {}
    for (name, layer), square in zip(signals.layers.items(), squares, strict=True):
        inputs = layer.inputs.detach().square()
        found[f"{name} weight"] = inputs.transpose(1, 2) @ square  # (R, m, outputs)
        found[f"{name} bias"] = square.sum(dim=1, keepdim=True)  # (R, 1, outputs)
    return found
