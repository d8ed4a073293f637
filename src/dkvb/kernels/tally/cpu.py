"""Sorted lists of counts in compiled loops: each list is read once, from front to back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.kernels._numba import compiled, run, take

COLUMNS = 1 << 20
ROWS = 8  # that a worker takes at a time

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


def join(
    places_a: Tensor, counts_a: Tensor, places_b: Tensor, counts_b: Tensor
) -> tuple[Tensor, Tensor]:
    """Walk through both lists at once."""
    most = len(places_a) + len(places_b)
    places, counts = torch.empty(most, dtype=torch.int64), torch.empty(most, dtype=torch.int32)
    tensors = (places_a, counts_a, places_b, counts_b, places, counts)
    length = _join(*[t.contiguous().numpy() for t in tensors])
    return places[:length].clone(), counts[:length].clone()


@compiled
def _join(
    places_a: I64, counts_a: I32, places_b: I64, counts_b: I32, places: I64, counts: I32
) -> int:
    a = b = length = 0
    while a < len(places_a) or b < len(places_b):
        from_b = a == len(places_a) or (b < len(places_b) and places_b[b] < places_a[a])
        if from_b:
            place, count = places_b[b], counts_b[b]
            b += 1
        else:
            place, count = places_a[a], counts_a[a]
            a += 1
            if b < len(places_b) and places_b[b] == place:
                count += counts_b[b]
                b += 1
        if count != 0:
            places[length], counts[length] = place, count
            length += 1
    return length


def pool(
    places: Tensor, counts: Tensor, bounds: Tensor, pairs: Tensor, table: Tensor, n_columns: int
) -> Tensor:
    """Row by row, pair by pair, entry by entry."""
    out = torch.zeros((len(pairs), n_columns), dtype=torch.int64)
    arrays = (t.contiguous().numpy() for t in (places, counts, bounds, pairs, table, out))
    run(_pool, -(-len(pairs) // ROWS), *arrays)
    return out


@compiled
def _pool(
    state: Any,
    worker: int,
    workers: int,
    places: I64,
    counts: I32,
    bounds: I64,
    pairs: I64,
    table: I64,
    out: I64,
) -> None:
    n, n_codebooks = pairs.shape
    task = take(state)
    while task * ROWS < n:
        for i in range(task * ROWS, min(task * ROWS + ROWS, n)):
            for c in range(n_codebooks):
                for entry in range(bounds[pairs[i, c]], bounds[pairs[i, c] + 1]):
                    out[i, places[entry] & (COLUMNS - 1)] += table[counts[entry]]
        task = take(state)
