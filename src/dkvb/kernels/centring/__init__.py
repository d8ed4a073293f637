"""Embeddings after signed power, L2 normalisation and centring: the same bits on any device.

Sums, products, quotients and roots are rounded alike everywhere; squares are summed over a fixed
binary tree (`nearest.tree_sum`). Of powers this holds for 1 and ½, which keys are fitted with.
`oracle` says what is computed; `cpu` does it in one compiled loop.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch

from dkvb.kernels import choose

__all__ = ["backend"]


@cache
def backend(device: torch.device | str, name: str | None = None) -> Any:
    """The module of functions for tensors on a device, or the one asked for."""
    name = choose(device, name)
    return import_module(f"dkvb.kernels.centring.{'oracle' if name == 'triton' else name}")
