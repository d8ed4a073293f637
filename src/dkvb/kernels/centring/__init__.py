"""Embeddings after signed power, L2 normalisation and centring: the same bits on any device.

Sums, products, quotients and roots are rounded alike everywhere; squares are summed over a fixed
binary tree (`nearest.tree_sum`). Of powers this holds for 1 and ½, which keys are fitted with.
`oracle` says what is computed; `cpu` does it in one compiled loop, for arrays of NumPy.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from dkvb.kernels import choose

__all__ = ["backend"]


@cache
def backend(device: Any, name: str | None = None) -> Any:
    """The module of functions for tensors on a device, or the one asked for."""
    compiled = choose(device, name) == "cpu"
    return import_module(f"dkvb.kernels.centring.{'cpu_tensors' if compiled else 'oracle'}")
