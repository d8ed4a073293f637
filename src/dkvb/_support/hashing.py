"""Random numbers as a function of counters: the same bits on any device, in any order of asking.

A generator with state would tie results to batch sizes, devices and threads. Here the k-th number
is a hash of (seed, counters), by the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_ALL = (1 << 64) - 1
_POSITIVE = (1 << 63) - 1  # the bits of a non-negative int64
_CHUNK = 1 << 15  # numbers hashed at a time, which stay in a cache


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _ALL
    return value - (1 << 64) if value >> 63 else value


_FIRST_SIGNED, _SECOND_SIGNED = _signed(_FIRST), _signed(_SECOND)


def _mix(z: Any) -> Any:
    # int64 multiplication wraps like uint64's; a logical shift is the arithmetic one, masked.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _FIRST_SIGNED
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND_SIGNED
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def _mix_number(z: int) -> int:
    z &= _ALL
    z = (z ^ (z >> 30)) * _FIRST & _ALL
    z = (z ^ (z >> 27)) * _SECOND & _ALL
    return z ^ (z >> 31)


def bits(seed: int, a: Any, b: Any, c: Any) -> Any:
    """63 random bits as a non-negative int64: a function of the seed and three counters.

    Counters are numbers, or integers in arrays of NumPy or tensors of torch, on any device. The
    result is such an array or tensor; a number where all counters are numbers.

    >>> bits(0, 1, 2, np.arange(3)).shape
    (3,)
    """
    state: Any = _mix_number(int(seed) + _GOLDEN)
    for counter in (a, b, c):
        # Numbers are mixed here: on a GPU each would be a copy and a dozen launches.
        if not isinstance(counter, Integral):
            old = _signed(state) if isinstance(state, int) else state
            state = _mix((_as_int64(counter) ^ old) + _signed(_GOLDEN))
        elif isinstance(state, int):
            state = _mix_number((state ^ int(counter)) + _GOLDEN)
        else:
            state = _mix((state ^ _signed(int(counter))) + _signed(_GOLDEN))
    return state & _POSITIVE


def _as_int64(counter: Any) -> Any:
    return counter.astype(np.int64) if isinstance(counter, np.ndarray) else counter.long()


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
    return np.int64(state & np.uint64(_POSITIVE))


def content_hash(x: NDArray[Any]) -> NDArray[np.int64]:
    """63 bits per row (n,), a function of the numbers in the row alone: x (n, m) of floats.

    Integer sums are exact in any order, so that the hash is the same in any batch.

    >>> first, same = content_hash(np.array([[0.0, 1.0], [-0.0, 1.0]]))
    >>> bool(first == same)
    True
    """
    n, m = x.shape[0], x.shape[1] * x.dtype.itemsize // 4
    size = max(1, _CHUNK // max(1, m))
    floats = np.empty((size, x.shape[1]), x.dtype)
    words, scratch = np.empty((2, size, m), np.uint64)
    places, sums = np.arange(m, dtype=np.uint64), np.empty(n, np.uint64)
    start = np.uint64(_mix_number(_mix_number(_GOLDEN) + _GOLDEN))  # of seed 0 and counter 0
    for first in range(0, n, size):
        part = x[first : first + size]
        k = len(part)
        np.add(part, 0, out=floats[:k])  # −0.0 becomes 0.0
        words.view(np.int64)[:k] = floats[:k].view(np.int32)
        for counters in (start, places):
            _mix_in_place(words[:k], counters, scratch[:k])
        words[:k] &= np.uint64(_POSITIVE)
        words[:k].sum(axis=1, out=sums[first : first + k])
    hashes: NDArray[np.int64] = bits(0, 0, 0, sums.view(np.int64))
    return hashes


def _mix_in_place(words: NDArray[np.uint64], other: Any, scratch: NDArray[np.uint64]) -> None:
    """The next state of `bits`, from the last and a counter, whichever is which."""
    words ^= other
    words += np.uint64(_GOLDEN)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        words ^= np.right_shift(words, np.uint64(shift), out=scratch)
        words *= np.uint64(factor)
    words ^= np.right_shift(words, np.uint64(31), out=scratch)
