"""Linear layers of models side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dkvb.estimators.baselines._optimizers import Tensors


def through(weights: Tensors, name: str, x: Tensor) -> Tensor:
    """The linear layer `name` of each model on its own rows: (R, b, m) → (R, b, outputs)."""
    weight, bias = weights[f"{name} weight"], weights.get(f"{name} bias")
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def random_layer(name: str, width: int, outputs: int, bias: bool = True) -> Tensors:
    """One model's layer as PyTorch begins it."""
    layer = nn.Linear(width, outputs, bias=bias)
    found = {f"{name} weight": layer.weight.detach().T.contiguous()}  # (m, outputs)
    return found | ({f"{name} bias": layer.bias.detach()[None]} if bias else {})


def empty_output(width: int, bias: bool = True) -> Tensors:
    """One model's last layer before it knows a class."""
    found = {"output weight": torch.zeros(width, 0)}
    return found | ({"output bias": torch.zeros(1, 0)} if bias else {})
