"""The step of SDMLP in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def step(
    neurons: Tensor,
    output: Tensor,
    answered: Tensor,
    x: Tensor,
    wanted: Tensor,
    rate: Tensor,
    k: int,
    switch_after: int,
    max_norm: float,
) -> None:
    """Take one step; see `dkvb.kernels.sdmlp.step`."""
    before = torch.bmm(x, neurons).relu()  # (R, b, N)
    runner_up = before.topk(k + 1, dim=2).values[:, :, -1:]  # (R, b, 1)
    active = (before - (2 * answered / switch_after - 1) * runner_up).relu()
    answered.add_((active > 0).sum(dim=1, keepdim=True)).clamp_(max=switch_after)
    error = (torch.bmm(active, output).softmax(dim=2) - wanted) / x.shape[1]  # (R, b, Y)
    # A neuron that excitation alone made active does not follow its input.
    follows = (active > 0) & (before > 0)
    into = torch.where(follows, error @ output.transpose(1, 2), 0.0)  # (R, b, N)
    slopes = [x.transpose(1, 2) @ into, active.transpose(1, 2) @ error]
    norm = sum(slope.square().sum(dim=(1, 2), keepdim=True) for slope in slopes) ** 0.5
    change = rate * (max_norm / (norm + 1e-6)).clamp(max=1.0)  # (R, 1, 1)
    for weight, slope in zip((neurons, output), slopes, strict=True):
        weight.sub_(change * slope).clamp_(min=0)
    neurons.div_(neurons.norm(dim=1, keepdim=True).clamp_(min=1e-12))
