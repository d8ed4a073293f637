"""Rows of embeddings as tensors: those of tensors stay on their device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dkvb._support import validation


def as_tensor(X: Any, name: str = "X", first_row: int = 0) -> Tensor:
    """Rows as a float32 tensor, refused where an entry is not a finite float32."""
    if not isinstance(X, Tensor):
        return torch.from_numpy(validation.as_float32(X, name, first_row))
    tensor = X.detach().to(torch.float32)
    if not math.isfinite(tensor.sum()):  # it mostly is, and then nothing is infinite or NaN
        finite = torch.isfinite(tensor).all(dim=-1)
        validation.check_finite(finite.cpu().numpy(), name, first_row)
    return tensor


def chunks(
    X: Any, size: int, name: str = "X", device: torch.device | str = "cpu"
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice, float32 rows on `device`) over X, never holding more than `size` rows."""
    for start in range(0, X.shape[0], size):
        part = slice(start, min(start + size, X.shape[0]))
        yield part, as_tensor(X[part], name, first_row=start).to(device)
