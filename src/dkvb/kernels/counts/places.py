"""Where counts stand in a list, pair · CLASS_STRIDE + class, and how numbers are held."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CLASS_STRIDE = 1 << 20  # more than the number of classes
NARROW = 1 << 31  # counts from here on need int64
LARGEST = 2.0**32  # of rows in steps of a fixed point
FRACTION = 2.0**20  # steps of what rounding takes from rows


def narrowed(counts: Tensor) -> Tensor:
    """Counts (E,) in int32, or in int64 where one of them needs it: equal counts, equal bits."""
    fits = not len(counts) or -NARROW < int(counts.min()) <= int(counts.max()) < NARROW
    return counts.to(torch.int32 if fits else torch.int64)


class Known(NamedTuple):
    """What `pool_logs` takes the logarithm of, kept by pair: found when a row first reads it."""

    factors: Tensor  # (pairs, Y) float64
    is_known: Tensor  # (pairs,) int8, 1 where the pair's factors were found
