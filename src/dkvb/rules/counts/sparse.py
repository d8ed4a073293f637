"""Sorted lists of counts that are not zero: made from codes and labels, merged, and read.

Several lists stand for their sum: a short one is put behind the others at once, and merged into
them when it has grown, so that what one example costs hardly depends on what was learned before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support import process_group
from dkvb._support.hashing import bits
from dkvb.bottleneck.values import flat_codes
from dkvb.kernels.counts import CLASS_STRIDE, backend

CELLS = 1 << 26  # of a table of counts that is filled at a time: 256 MB
# Of a codebook's table, for each row: with more, sorting the places is quicker. Measured on a CPU.
CELLS_PER_ROW = {"cpu": 2, "cuda": 64}
KEPT = 20  # one row in this many is kept
GROWTH = 4  # a list is merged into the one before it unless that one is this many times longer


Pairs = tuple[Tensor, Tensor]  # places and counts


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """A sorted list of places (pair · CLASS_STRIDE + class) and the counts there."""

    places: Tensor  # (E,) int64, ascending, distinct
    counts: Tensor  # (E,) int32

    def __len__(self) -> int:
        return len(self.places)

    def to(self, device: torch.device | str) -> SparseCounts:
        return SparseCounts(self.places.to(device), self.counts.to(device))


def merged(first: SparseCounts, second: SparseCounts) -> SparseCounts:
    """One list with the sums of both, zeros dropped."""
    if not len(first) or not len(second):
        return second if len(second) else first
    join = backend(first.places.device).join
    return SparseCounts(*join(first.places, first.counts, second.places, second.counts))


def table_pays(codes: Tensor, n_pairs: int, n_present: int) -> bool:
    """Whether to count codes (n, C) in a table of pairs × classes rather than by sorting."""
    return 0 < n_pairs * n_present <= CELLS_PER_ROW.get(codes.device.type, 2) * len(codes)


def count(codes: Tensor, class_index: Tensor, n_pairs: int, present: Tensor) -> SparseCounts:
    """How often codes (n, C) select each pair with each of their classes (n,); `present` (P,) are
    the classes that occur, ascending."""
    per_row = CELLS_PER_ROW.get(codes.device.type, 2)
    if 0 < n_pairs * len(present) <= per_row * len(codes):
        return _count_in_table(codes, class_index, n_pairs, present)
    places = flat_codes(codes, n_pairs) * CLASS_STRIDE + class_index[:, None]
    distinct, counts = torch.unique(places, return_counts=True)
    return SparseCounts(distinct, counts.to(torch.int32))


def _count_in_table(
    codes: Tensor, class_index: Tensor, n_pairs: int, present: Tensor
) -> SparseCounts:
    """The same by a table of pairs × classes."""
    rank = torch.zeros(int(present[-1]) + 1, dtype=torch.int64, device=codes.device)
    rank[present] = torch.arange(len(present), device=codes.device)
    position, C, parts = rank[class_index], codes.shape[1], []
    size = max(1, CELLS // (n_pairs * len(present)))  # codebooks whose tables are filled together
    for first in range(0, C, size):
        books = slice(first, min(first + size, C))
        shape = (books.stop - first, n_pairs, len(present))
        table = torch.zeros(shape, dtype=torch.int32, device=codes.device)
        backend(codes.device).count(codes[:, books], position, table)
        parts.append(_listed(table, first, present))
    return SparseCounts(*(torch.cat(same) for same in zip(*parts, strict=True)))


def in_order(places: Tensor, counts: Tensor) -> SparseCounts:
    """A list of places in any order, the same ones added."""
    places, order = torch.sort(places)
    if bool((places[1:] > places[:-1]).all()):  # nothing to add
        return SparseCounts(places, counts[order])
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts[order].long())
    return SparseCounts(distinct, total.to(torch.int32))


def settled(lists: tuple[SparseCounts, ...]) -> tuple[SparseCounts, ...]:
    """Merge from the end until every list is much longer than the next."""
    *rest, last = lists
    while rest and len(rest[-1].places) < GROWTH * len(last.places):
        shorter = rest.pop()
        last = merged(shorter, last) if len(shorter.places) else last
    return (*rest, last)


def at(lists: Sequence[SparseCounts], places: Tensor) -> Tensor:
    """The sums at places (...) of any shape, int64."""
    found = torch.zeros_like(places)
    for one in lists:
        if len(one):
            at = torch.searchsorted(one.places, places.contiguous()).clamp(max=len(one) - 1)
            found += torch.where(one.places[at] == places, one.counts[at], 0)
    return found


def of_books(lists: Sequence[SparseCounts], books: Sequence[int], n_pairs: int) -> SparseCounts:
    """The sum at the pairs of some codebooks, ascending, renumbered from 0."""
    size, parts = n_pairs * CLASS_STRIDE, []
    for one in lists:
        found = []
        for number, book in enumerate(books):
            ends = torch.tensor([book, book + 1], device=one.places.device) * size
            first, last = torch.searchsorted(one.places, ends).tolist()
            found.append((one.places[first:last] - (book - number) * size, one.counts[first:last]))
        parts.append(SparseCounts(*(torch.cat(same) for same in zip(*found, strict=True))))
    return reduce(merged, reversed(parts))


def of_pairs(
    lists: Sequence[SparseCounts], pairs: NDArray[np.int64], n_columns: int
) -> NDArray[np.int64]:
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


# --------------------------------------------------------------------------------- of all processes
def summed(places: Tensor, counts: Tensor, n_codebooks: int, n_pairs: int, Y: int) -> Pairs:
    """The sum of all processes' lists: the same, bit for bit, in each of them.

    Lists are gathered, 12 bytes an entry, or the table of the classes present is summed, 4 bytes
    a cell, whichever sends less (`sends_table`).
    """
    longest = max(process_group.all_gather_objects(len(places)))
    seen = torch.zeros(Y, dtype=torch.int64, device=places.device)
    seen[places % CLASS_STRIDE] = 1
    present = torch.nonzero(process_group.all_reduce(seen, "notes"))[:, 0]  # (P,)
    if sends_table(longest, n_codebooks * n_pairs * len(present)):
        return _summed_tables(places, counts, n_codebooks, n_pairs, present)
    lists = zip(process_group.all_gather(places), process_group.all_gather(counts), strict=True)
    total = next(lists)
    for other in lists:
        total = backend(places.device).join(*total, *other)
    return total


def sends_table(entries: int, cells: int) -> bool:
    """Whether N processes send less by summing tables of so many cells, in a ring, than by sending
    everyone lists as long as the longest: 2 (N − 1)/N · 4 · cells against (N − 1) · 12 · entries.
    """
    return 2 * 4 * cells < process_group.world_size() * 12 * entries


def _summed_tables(
    places: Tensor, counts: Tensor, n_codebooks: int, n_pairs: int, present: Tensor
) -> Pairs:
    P, found = len(present), []
    size = max(1, CELLS // max(1, n_pairs * P))
    for start in range(0, n_codebooks, size):
        books = slice(start, min(start + size, n_codebooks))
        ends = (
            torch.tensor([books.start, books.stop], device=places.device) * n_pairs * CLASS_STRIDE
        )
        first, last = torch.searchsorted(places, ends).tolist()
        pair, column = places[first:last] // CLASS_STRIDE, places[first:last] % CLASS_STRIDE
        cells = (books.stop - books.start) * n_pairs * P
        table = torch.zeros(cells, dtype=torch.int32, device=places.device)
        at = (pair - books.start * n_pairs) * P + torch.searchsorted(present, column)
        table[at] = counts[first:last]
        table = process_group.all_reduce(table).view(-1, n_pairs, P)
        found.append(_listed(table, books.start, present))
    return torch.cat([places for places, _ in found]), torch.cat([counts for _, counts in found])


def _listed(table: Tensor, first_book: int, present: Tensor) -> Pairs:
    """A table of counts (g, K, P) of the columns present (P,) as a list."""
    _, K, P = table.shape
    cell = torch.nonzero(table.view(-1))[:, 0]
    pair = torch.div(cell, P, rounding_mode="floor")
    places = (pair + first_book * K) * CLASS_STRIDE + present[cell - pair * P]
    return places, table.view(-1)[cell]


# ------------------------------------------------------------------------------ rows that are kept
def code_hash(codes: Tensor) -> Tensor:
    """63 bits (n,) from codes (n, C): always the same for the same codes."""
    hashes: Tensor = backend(codes.device).hash_codes(codes, _factors(codes.shape[1], codes.device))
    return hashes


def kept_rows(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows of codes (n, C) are kept, picked by a hash: their numbers (k,), codes (k, C)."""
    factors = _factors(codes.shape[1], codes.device)
    hashes = backend(codes.device).hash_codes(codes, factors)
    kept = torch.nonzero(hashes % KEPT == 0)[:, 0]
    if codes.dtype == torch.uint16:  # which torch cannot index on every device
        return kept, codes.view(torch.int16)[kept].int() & 0xFFFF
    return kept, codes[kept].int()


@cache
def _factors(n_codebooks: int, device: torch.device) -> Tensor:
    return 2 * bits(2, torch.arange(n_codebooks, device=device), 0, 0) + 1  # odd (C,)


def left_after(
    codes: Tensor, columns: Tensor, gone_codes: Tensor, gone_columns: Tensor
) -> Tensor | None:
    """Which rows (S,) bool are left of codes (S, C) with columns (S,) when others are taken out,
    each once; None if one of those is not there."""
    gone = Counter(_as_bytes(gone_codes, gone_columns))
    left = torch.ones(len(codes), dtype=torch.bool)
    if gone:
        for i, row in enumerate(_as_bytes(codes, columns)):
            if gone[row] > 0:
                gone[row] -= 1
                left[i] = False
    return None if any(gone.values()) else left.to(codes.device)


def _as_bytes(codes: Tensor, columns: Tensor) -> list[bytes]:
    both = torch.cat([codes, columns.int()[:, None]], dim=1)
    return [row.tobytes() for row in both.cpu().numpy()]


def some_rows(codes: Tensor, rows: Tensor) -> Tensor:
    """Some rows of codes (n, C) as int32; torch cannot index uint16 on every device."""
    if codes.dtype == torch.uint16:
        return codes.view(torch.int16)[rows].int() & 0xFFFF
    return codes[rows].int()
