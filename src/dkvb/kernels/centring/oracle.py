"""What the versions of centring compute, in plain torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dkvb.kernels.nearest import tree_sum


def centred(x: Tensor, centre: Tensor, power: float, normalise: bool) -> Tensor:
    """Rows (n, m) float64 of embeddings x (n, m) float32, less a centre (m,) float32."""
    z = x.double()
    if power != 1.0:
        z = z.sign() * (_root(z.abs()) if power == 0.5 else z.abs() ** power)
    if normalise:
        norms = _root(tree_sum(z * z, dim=1))[:, None]
        z = z / torch.where(norms > 0, norms, 1.0)
    return z - centre


def _root(z: Tensor) -> Tensor:
    """Square roots, rounded to the nearest: torch's may be off by one bit on a CPU."""
    return torch.from_numpy(np.sqrt(z.numpy())) if z.device.type == "cpu" else z.sqrt()
