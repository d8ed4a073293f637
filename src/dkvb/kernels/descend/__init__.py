"""Learning values by stochastic gradient descent on codes: whole epochs in one call."""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from dkvb.kernels import choose

__all__ = ["descend"]


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
    module = import_module(f"dkvb.kernels.descend.{choose(values.device, backend)}")
    module.descend(values, codes, y, orders, batch_size, lr, smoothing)
