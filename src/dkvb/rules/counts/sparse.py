"""Sorted lists of counts that are not zero: merged and read.

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

from dkvb.kernels.counts import CLASS_STRIDE, backend, narrowed


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """A sorted list of places (pair · CLASS_STRIDE + class) and the counts there."""

    places: Tensor  # (E,) int64, ascending, distinct
    counts: Tensor  # (E,) int32, or int64 where one needs it

    def __len__(self) -> int:
        return len(self.places)

    def to(self, device: torch.device | str) -> SparseCounts:
        return SparseCounts(self.places.to(device), self.counts.to(device))


Tallies = tuple[SparseCounts, ...]  # whose sum is meant


def merged(first: SparseCounts, second: SparseCounts) -> SparseCounts:
    """One list with the sums of both, zeros dropped."""
    if not len(first) or not len(second):
        return second if len(second) else first
    join = backend(first.places.device).join
    return SparseCounts(*join(first.places, first.counts, second.places, second.counts))


def whole(lists: Sequence[SparseCounts]) -> SparseCounts:
    """All lists as one: equal counts give equal bits."""
    return reduce(merged, reversed(lists))  # short lists first


def in_order(places: Tensor, counts: Tensor) -> SparseCounts:
    """A list of places in any order, the same ones added."""
    places, order = torch.sort(places)
    if bool((places[1:] > places[:-1]).all()):  # nothing to add
        return SparseCounts(places, counts[order])
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts[order].long())
    return SparseCounts(distinct, narrowed(total))


def at(lists: Sequence[SparseCounts], places: Tensor) -> Tensor:
    """The sums at places (...) of any shape, int64."""
    found = torch.zeros_like(places)
    for one in lists:
        if len(one):
            at = torch.searchsorted(one.places, places.contiguous()).clamp(max=len(one) - 1)
            found += torch.where(one.places[at] == places, one.counts[at], 0)
    return found


def of_pairs(
    lists: Sequence[SparseCounts], pairs: NDArray[np.int64], n_classes: int
) -> NDArray[np.int64]:
    """The sums of a few pairs (...), each class: (..., n_classes).

    In NumPy, since torch wakes its threads even for 200 numbers, and waiting for them can cost
    more than the work.
    """
    flat = pairs.ravel()
    dense = np.zeros(len(flat) * n_classes, dtype=np.int64)
    for one in lists:
        places, counts = one.places.cpu().numpy(), one.counts.cpu().numpy()
        low = np.searchsorted(places, flat * CLASS_STRIDE)
        length = np.searchsorted(places, (flat + 1) * CLASS_STRIDE) - low
        reader = np.repeat(np.arange(len(flat)), length)  # (e,) which of the pairs
        entry = np.arange(len(reader)) + (low - np.cumsum(length) + length)[reader]
        cell = reader * n_classes + places[entry] % CLASS_STRIDE  # distinct in one list
        dense[cell] += counts[entry]
    return dense.reshape(*pairs.shape, n_classes)


def selected_pairs(
    lists: Sequence[SparseCounts], first: int, size: int, n_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of the pairs first … first + size − 1 have counts, less `first` (k,), and their sums of
    each class (k, n_classes)."""
    entries = []
    for one in lists:
        places = one.places.cpu().numpy()
        start, stop = np.searchsorted(places, [first * CLASS_STRIDE, (first + size) * CLASS_STRIDE])
        places = places[start:stop] - first * CLASS_STRIDE
        entries.append((places // CLASS_STRIDE, places % CLASS_STRIDE, one.counts[start:stop]))
    has_counts = np.zeros(size, dtype=bool)
    for pair, _, _ in entries:
        has_counts[pair] = True
    row = np.cumsum(has_counts) - 1
    sums = np.zeros((int(has_counts.sum()), n_classes), dtype=np.int64)
    for pair, class_index, counts in entries:
        sums[row[pair], class_index] += counts.cpu().numpy()  # distinct in one list
    selected = sums.any(axis=1)  # lists that were taken away may cancel
    return np.flatnonzero(has_counts)[selected], sums[selected]
