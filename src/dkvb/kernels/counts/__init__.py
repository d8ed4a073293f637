"""Counts of pairs and classes: tables, sorted lists, sums over what rows find in these.

A list is (places (E,) int64 ascending and distinct, counts (E,) int32, or int64 where one needs
it), where a place is pair · CLASS_STRIDE + class. `backend` gives the module that works on a
device; `oracle` says what each function does.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dkvb.kernels import choose
from dkvb.kernels.counts.places import CLASS_STRIDE, LARGEST, NARROW, Known, narrowed

__all__ = ["CLASS_STRIDE", "LARGEST", "NARROW", "Bounded", "Known", "backend", "narrowed"]


class Bounded(NamedTuple):
    """A list, and where the entries of each pair begin in it."""

    places: Tensor  # (E,) int64
    counts: Tensor  # (E,) int32 or int64
    bounds: Tensor  # (pairs + 1,) int64


@cache
def backend(device: torch.device | str, name: str | None = None) -> Any:
    """The module of functions for tensors on a device, or the one asked for."""
    name = choose(device, name)
    # On a GPU the plain version is quick enough.
    return import_module(f"dkvb.kernels.counts.{'oracle' if name == 'triton' else name}")
