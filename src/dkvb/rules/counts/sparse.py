"""Sorted lists of counts that are not zero: the memory of counting.

Several lists stand for their sum: a short one is put behind the others at once, and merged into
them when it has grown, so that what one example costs hardly depends on what was learned before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.kernels import counts as tally
from dkvb.kernels.counts import CLASS_STRIDE

GROWTH = 4  # a list is merged into the one before it unless that one is this many times longer


@dataclass(frozen=True, eq=False)
class Tally:
    """A sorted list of places (pair · CLASS_STRIDE + class) and the counts there."""

    places: Tensor  # (E,) int64, ascending, distinct
    counts: Tensor  # (E,) int32

    def __len__(self) -> int:
        return len(self.places)

    def to(self, device: torch.device | str) -> Tally:
        return Tally(self.places.to(device), self.counts.to(device))


def merged(first: Tally, second: Tally) -> Tally:
    """One list with the sums of both, zeros dropped."""
    if not len(first) or not len(second):
        return second if len(second) else first
    return Tally(*tally.join((first.places, first.counts), (second.places, second.counts)))


def in_order(places: Tensor, counts: Tensor) -> Tally:
    """A list of places in any order, the same ones added."""
    places, order = torch.sort(places)
    if bool((places[1:] > places[:-1]).all()):  # nothing to add
        return Tally(places, counts[order])
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts[order].long())
    return Tally(distinct, total.to(torch.int32))


def settled(lists: tuple[Tally, ...]) -> tuple[Tally, ...]:
    """Merge from the end until every list is much longer than the next."""
    *rest, last = lists
    while rest and len(rest[-1]) < GROWTH * len(last):
        last = merged(rest.pop(), last)
    return (*rest, last)


def at(lists: Sequence[Tally], places: Tensor) -> Tensor:
    """The sums at places (...) of any shape, int64."""
    found = torch.zeros_like(places)
    for one in lists:
        if len(one):
            at = torch.searchsorted(one.places, places.contiguous()).clamp(max=len(one) - 1)
            found += torch.where(one.places[at] == places, one.counts[at], 0)
    return found


def of_books(lists: Sequence[Tally], books: Sequence[int], n_pairs: int) -> Tally:
    """The sum at the pairs of some codebooks, ascending, renumbered from 0."""
    size, parts = n_pairs * CLASS_STRIDE, []
    for one in lists:
        found = []
        for number, book in enumerate(books):
            ends = torch.tensor([book, book + 1], device=one.places.device) * size
            first, last = torch.searchsorted(one.places, ends).tolist()
            found.append((one.places[first:last] - (book - number) * size, one.counts[first:last]))
        parts.append(Tally(*(torch.cat(same) for same in zip(*found, strict=True))))
    return reduce(merged, reversed(parts))


def of_pairs(lists: Sequence[Tally], pairs: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
    """The sums of a few pairs (p,), each class: (p, n_columns).

    In NumPy, since torch wakes its threads even for 200 numbers, and waiting for them can cost
    more than the work.
    """
    dense = np.zeros(len(pairs) * n_columns, dtype=np.int64)
    for one in lists:
        places, counts = one.places.cpu().numpy(), one.counts.cpu().numpy()
        low = np.searchsorted(places, pairs * CLASS_STRIDE)
        length = np.searchsorted(places, (pairs + 1) * CLASS_STRIDE) - low
        reader = np.repeat(np.arange(len(pairs)), length)  # (e,) which of the pairs
        entry = np.arange(len(reader)) + (low - np.cumsum(length) + length)[reader]
        dense[reader * n_columns + places[entry] % CLASS_STRIDE] += counts[
            entry
        ]  # distinct in one list
    return dense.reshape(len(pairs), n_columns)
