"""Sums of embeddings by class as whole numbers of any size: two limbs of 62 bits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LIMB = 62  # bits of a low limb
FULL = 1 << 61  # low limbs lie in [−FULL, FULL); two of them, and a batch, add up in int64
HALF = 31  # bits of half a limb: many of these add up in int64
MASK = (1 << HALF) - 1


class ClassSums(NamedTuple):
    """Sums low + 2⁶² · high by class: equal sums have equal limbs."""

    low: Tensor  # (Y, m + p + 1) int64
    high: Tensor | None = None  # the same; None where all are zero, as with fewer than 10⁹ rows

    def to(self, device: torch.device | str) -> ClassSums:
        return ClassSums(self.low.to(device), None if self.high is None else self.high.to(device))


def carried(halves: Tensor, rest: Tensor, high: Tensor | None) -> ClassSums:
    """The sums 2³¹ · halves + rest + 2⁶² · high in the one form that they have."""
    halves = halves + (rest >> HALF)
    over = (halves + (1 << (HALF - 1))) >> HALF
    low = ((halves - (over << HALF)) << HALF) + (rest & MASK)
    high = over if high is None else high + over
    return ClassSums(low, high if bool(high.any()) else None)


def in_limbs(low: Tensor, high: Tensor | None = None) -> ClassSums:
    """The sums low + 2⁶² · high, where `low` may be any int64."""
    return carried(low >> HALF, low & MASK, high)


def by_class(sums: ClassSums, target: Tensor, n_classes: int) -> ClassSums:
    """With class y called target[y]; classes that meet are added, a negative target drops one."""
    kept = target >= 0

    def moved(part: Tensor) -> Tensor:
        empty = part.new_zeros((n_classes, part.shape[1]))
        return empty.index_add_(0, target[kept], part[kept])

    high = None if sums.high is None else moved(sums.high)
    return carried(moved(sums.low >> HALF), moved(sums.low & MASK), high)
