"""Where counts stand in a list, pair · CLASS_STRIDE + class, and how they are held."""

from __future__ import annotations

import torch
from torch import Tensor

CLASS_STRIDE = 1 << 20  # more than the number of classes
NARROW = 1 << 31  # counts from here on need int64


def narrowed(counts: Tensor) -> Tensor:
    """Counts (E,) in int32, or in int64 where one of them needs it: equal counts, equal bits."""
    fits = not len(counts) or -NARROW < int(counts.min()) <= int(counts.max()) < NARROW
    return counts.to(torch.int32 if fits else torch.int64)
