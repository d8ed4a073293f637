"""Perturbed embeddings and their codes."""

from __future__ import annotations

import torch
from torch import Tensor


def add_noise(X: Tensor, alpha: float, *, unit: float = 1.0, seed: int = 0) -> Tensor:
    """Return embeddings (n, m) + α · unit · Gaussian noise, with equal noise for every α of a seed.

    >>> X = torch.zeros(2, 3)
    >>> bool((add_noise(X, 0.2, seed=1) == 2 * add_noise(X, 0.1, seed=1)).all())
    True
    """
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device
    noise = torch.randn(X.shape, generator=generator)
    return X + alpha * unit * noise.to(X.device)


def changed_codes(codes: Tensor, others: Tensor) -> Tensor:
    """Return where codes (n, C) differ, as booleans (n, C)."""
    # torch cannot compare uint16.
    return codes.to(torch.int32) != others.to(torch.int32)
