"""What `dkvb._support.hashing` computes, for tensors on any device: the same bits."""

from __future__ import annotations

import torch
from torch import Tensor

from dkvb._support import hashing
from dkvb._support.hashing import bits


def content_hash(x: Tensor) -> Tensor:
    """63 bits per row (n,), a function of the numbers in the row alone: x (n, m) of floats."""
    if x.device.type == "cpu":
        return torch.from_numpy(hashing.content_hash(x.numpy()))
    whole = torch.empty(x.shape, dtype=x.dtype, device=x.device)  # with strides that can be viewed
    words = torch.add(x, 0.0, out=whole).view(torch.int32).long()  # −0.0 becomes 0.0
    places = torch.arange(words.shape[1], device=x.device)
    hashes: Tensor = bits(0, 0, 0, bits(0, 0, words, places).sum(dim=1))
    return hashes


def epoch_order(n: int, seed: int, epoch: int, device: torch.device | str = "cpu") -> Tensor:
    """The order in which epoch `epoch` visits n rows: a permutation (n,) int64.

    >>> sorted(epoch_order(5, seed=0, epoch=3).tolist())
    [0, 1, 2, 3, 4]
    """
    return epoch_orders(n, seed, epoch, 1, device)[0]


def epoch_orders(
    n: int, seed: int, first_epoch: int, epochs: int, device: torch.device | str = "cpu"
) -> Tensor:
    """`epoch_order` of `epochs` epochs in a row (epochs, n) int64."""
    epoch = torch.arange(first_epoch, first_epoch + epochs, device=device)[:, None]
    rows = torch.arange(n, device=device)
    return torch.argsort(bits(seed, epoch, 0, rows), dim=1, stable=True)
