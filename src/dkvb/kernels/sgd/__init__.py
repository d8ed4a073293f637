"""Learning values by stochastic gradient descent on codes.

`descend` runs whole epochs in one call. Where values are stored in 16 bits, a step is taken apart:
`pool` sums the values that a batch reads, `step` turns the sum over all codebooks into a change,
`push` adds that to the values read.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dkvb.kernels import choose
from dkvb.kernels.sgd.oracle import step

__all__ = ["descend", "epochs_on", "pool", "push", "step"]


def descend(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float = 0.0,
    backend: str | None = None,
) -> None:
    """Change values (C, K, Y) float32 in place by SGD on the cross entropy of their mean.

    codes (n, C) int32 or uint16, y (n,) int64 the column of each row's class, orders (epochs, n')
    int64 the rows of each epoch one after the other, cut into batches of which the last may be
    partial. A step is values −= lr · gradient of the batch's mean loss, with targets
    (1 − smoothing) · onehot + smoothing / Y; the softmax runs over all Y columns.
    """
    epochs_on(values.device, backend).descend(values, codes, y, orders, batch_size, lr, smoothing)


@cache
def epochs_on(device: torch.device, backend: str | None = None) -> Any:
    """The module whose `descend` runs on a device, or the one asked for."""
    return import_module(f"dkvb.kernels.sgd.{choose(device, backend)}")


def pool(values: Tensor, codes: Tensor, backend: str | None = None) -> Tensor:
    """The sum of the values that each row of codes (B, C) reads: (B, Y) float32.

    values (C, K, Y) are float32, bfloat16 or float16; nothing of size B · C · Y is made.
    """
    summed: Tensor = _backend(values, backend).pool(values, codes)
    return summed


def push(
    values: Tensor, codes: Tensor, change: Tensor, seed: int = 0, backend: str | None = None
) -> None:
    """Add change (B, Y) float32 to all values that each row of codes (B, C) reads, in place.

    A step is often smaller than half the distance of two 16-bit numbers, and rounding to the
    nearest would lose it. There the sum is rounded up or down at random, by a hash of the seed and
    the place, so that it is right on average.
    """
    _backend(values, backend).push(values, codes, change, seed)


def _backend(values: Tensor, backend: str | None) -> Any:
    name = choose(values.device, backend)
    # On a GPU the plain version is quick enough, and only it knows numbers of 16 bits.
    plain = name == "triton" or values.dtype != torch.float32
    return import_module(f"dkvb.kernels.sgd.{'oracle' if plain else name}")
