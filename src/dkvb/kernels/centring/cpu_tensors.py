"""The compiled version of centring, for tensors on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from dkvb.kernels.centring import cpu


def centred(x: Tensor, centre: Tensor, power: float, normalise: bool) -> Tensor:
    """Rows (n, m) float64 of embeddings x (n, m) float32, less a centre (m,) float32."""
    return torch.from_numpy(cpu.centred(x.numpy(), centre.numpy(), power, normalise))
