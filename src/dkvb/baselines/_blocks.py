"""Functions of rows whose results do not depend on the batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 128  # rows multiplied at a time


def in_blocks(function: Callable[[Tensor], Tensor], x: Tensor, size: int = BLOCK) -> Tensor:
    """Return `function` of rows x (n, w), always called with `size` rows.

    Libraries choose an algorithm for matrix products by the number of rows, and sums that are
    rounded in another order are other numbers.
    """
    parts = []
    for block in x.split(size):
        full = torch.nn.functional.pad(block, (0, 0, 0, size - len(block)))
        parts.append(function(full)[: len(block)])
    return torch.cat(parts)
