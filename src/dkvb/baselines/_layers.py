"""Linear layers with a leading model axis R."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dkvb.baselines._optimizers import Tensors


def linear_layer(weights: Tensors, name: str, x: Tensor) -> Tensor:
    """Apply the layer `name` of each model to its own inputs: (R, b, m) → (R, b, outputs)."""
    weight, bias = weights[f"{name} weight"], weights.get(f"{name} bias")
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def make_random_layer(name: str, width: int, outputs: int, bias: bool = True) -> Tensors:
    """Return one model's layer with PyTorch's initialisation."""
    layer = nn.Linear(width, outputs, bias=bias)
    result = {f"{name} weight": layer.weight.detach().T.contiguous()}  # (m, outputs)
    return result | ({f"{name} bias": layer.bias.detach()[None]} if bias else {})


def make_empty_output(width: int, bias: bool = True) -> Tensors:
    """Return one model's last layer without classes."""
    result = {"output weight": torch.zeros(width, 0)}
    return result | ({"output bias": torch.zeros(1, 0)} if bias else {})
