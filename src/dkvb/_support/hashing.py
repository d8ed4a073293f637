"""Random numbers as a function of counters: the same bits on any device, in any order of asking.

A generator with state would tie results to batch sizes, devices and threads. Here the k-th number
is a hash of (seed, counters), by the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_ALL = (1 << 64) - 1


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_FIRST_SIGNED, _SECOND_SIGNED = _signed(_FIRST), _signed(_SECOND)


def _mix(z: Tensor) -> Tensor:
    # int64 multiplication wraps like uint64's; a logical shift is the arithmetic one, masked.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _FIRST_SIGNED
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND_SIGNED
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def _mix_number(z: int) -> int:
    z &= _ALL
    z = (z ^ (z >> 30)) * _FIRST & _ALL
    z = (z ^ (z >> 27)) * _SECOND & _ALL
    return z ^ (z >> 31)


def bits(seed: int, a: int | Tensor, b: int | Tensor, c: int | Tensor) -> Tensor:
    """63 random bits as a non-negative int64: a function of the seed and three counters.

    >>> bits(0, 1, 2, torch.arange(3)).shape
    torch.Size([3])
    """
    state: int | Tensor = _mix_number(seed + _GOLDEN)
    for counter in (a, b, c):
        # Numbers are mixed here: on a GPU each would be a copy and a dozen launches.
        if isinstance(counter, Tensor):
            old = state if isinstance(state, Tensor) else _signed(state)
            state = _mix((counter.long() ^ old) + _signed(_GOLDEN))
        elif isinstance(state, Tensor):
            state = _mix((state ^ _signed(int(counter))) + _signed(_GOLDEN))
        else:
            state = _mix_number((state ^ int(counter)) + _GOLDEN)
    if isinstance(state, int):
        return torch.tensor(state & ((1 << 63) - 1))
    return state & ((1 << 63) - 1)


def scalar_bits(seed: Any, a: Any, b: Any, c: Any) -> Any:
    """`bits` for one set of counters, in a form that numba can compile."""
    golden = np.uint64(_GOLDEN)
    state = np.uint64(seed) + golden
    for step in range(4):
        if step == 1:
            state = (state ^ np.uint64(a)) + golden
        if step == 2:
            state = (state ^ np.uint64(b)) + golden
        if step == 3:
            state = (state ^ np.uint64(c)) + golden
        state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
        state = state ^ (state >> np.uint64(31))
    return np.int64(state & np.uint64((1 << 63) - 1))


def content_hash(x: Tensor) -> Tensor:
    """63 bits per row (n,), a function of the numbers in the row alone: x (n, m) of floats.

    Integer sums are exact in any order, so that the hash is the same in any batch.
    """
    whole = torch.empty(x.shape, dtype=x.dtype, device=x.device)  # with strides that can be viewed
    words = torch.add(x, 0.0, out=whole).view(torch.int32).long()  # −0.0 becomes 0.0
    places = torch.arange(words.shape[1], device=x.device)
    return bits(0, 0, 0, bits(0, 0, words, places).sum(dim=1))


def epoch_order(n: int, seed: int, epoch: int, device: torch.device | str = "cpu") -> Tensor:
    """The order in which epoch `epoch` visits n rows: a permutation (n,) int64.

    >>> sorted(epoch_order(5, seed=0, epoch=3).tolist())
    [0, 1, 2, 3, 4]
    """
    rows = torch.arange(n, device=device)
    return torch.argsort(bits(seed, epoch, 0, rows), stable=True)


def epoch_orders(
    n: int, seed: int, first_epoch: int, epochs: int, device: torch.device | str = "cpu"
) -> Tensor:
    """`epoch_order` of `epochs` epochs in a row (epochs, n) int64."""
    epoch = torch.arange(first_epoch, first_epoch + epochs, device=device)[:, None]
    rows = torch.arange(n, device=device)
    return torch.argsort(bits(seed, epoch, 0, rows), dim=1, stable=True)
