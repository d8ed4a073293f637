"""Which key lies nearest to each head.

The search runs in float32 (on the CPU and on CUDA) with scores ½‖k‖² − h·k, which order keys as L2
distances do, and says for which heads rounding could have changed the answer. Whoever calls decides
those few again with `decide`, in float64, so that codes are canonical.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dkvb.kernels import choose
from dkvb.kernels.nearest.oracle import decide, squared_distances, tree_sum

__all__ = ["KeyIndex", "build_index", "decide", "search", "squared_distances", "tree_sum"]

DOUBLE_ROUNDOFF = 2.0**-53
OVERFLOW = 2.0**100  # scores beyond this are near what float32 can hold


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """Keys laid out for one backend's search."""

    backend: str
    scale: Tensor  # (C,) float64, powers of two that bring the keys of each codebook near 1
    reach: Tensor  # (C,) float64, the largest norm of a scaled key
    key_dim: int
    layout: Any


def build_index(keys: Tensor, allowed: Tensor | None = None, backend: str | None = None) -> KeyIndex:
    """Lay out keys (C, K, d) for searching those that are `allowed` (C, K)."""
    backend = choose(keys.device, backend)
    norms = keys.double().norm(dim=2)
    if allowed is not None:
        norms = norms.masked_fill(~allowed, 0.0)
    largest = norms.amax(dim=1)
    # Powers of two scale exactly, and keep float32 squares away from overflow and underflow.
    scale = torch.where(largest > 0, torch.exp2(-torch.floor(torch.log2(largest))), 1.0)
    scaled = keys.double() * scale[:, None, None]
    bias = 0.5 * (scaled * scaled).sum(dim=2)
    if allowed is not None:
        bias = bias.masked_fill(~allowed, torch.inf)
    layout = _backend(backend).prepare(scaled, bias)
    return KeyIndex(backend, scale, largest * scale, keys.shape[2], layout)


def search(
    index: KeyIndex, heads: Tensor, top: int = 1, error: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """The `top` nearest keys of heads (n, C, d) float64: codes (n, C, top) int32, unsure (n, C) bool.

    The bound has three parts. A score is a sum of d + 1 terms of rounded factors, each term at most
    ‖h‖·reach + reach²/2, and two scores are compared. The canonical decision rounds too, in
    proportion to the squared distance. And its head may lie `error` (n, C) away from this one.
    """
    module = _backend(index.backend)
    scaled = heads * index.scale[:, None]  # (n, C, d)
    norm = scaled.norm(dim=2)  # (n, C)
    size = norm * index.reach + 0.5 * index.reach**2
    tolerance = (
        4 * module.UNIT_ROUNDOFF * (index.key_dim + 2) * size
        + 4 * DOUBLE_ROUNDOFF * (index.key_dim + 2) * (norm + index.reach) ** 2
        + 2 * index.reach * error * index.scale
    )
    dtype = torch.float64 if index.backend == "oracle" else torch.float32
    codes, unsure = module.search(scaled.to(dtype), index.layout, tolerance.to(dtype), top)
    return codes, unsure | (size > OVERFLOW)


def _backend(name: str) -> Any:
    return import_module(f"dkvb.kernels.nearest.{name}")
