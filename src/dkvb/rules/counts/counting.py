"""From codes and labels to sorted lists of counts: of one process's rows, and of all processes'.

A list is (places (E,) int64 ascending and distinct, counts (E,) int32), where a place is
pair · CLASS_STRIDE + class; see `dkvb.kernels.counts`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb.bottleneck.values import flat_codes
from dkvb.kernels import counts as tally
from dkvb.kernels import kmeans as accumulate
from dkvb.kernels.counts import CLASS_STRIDE

List = tuple[Tensor, Tensor]

CELLS = 1 << 26  # of a table of counts that is filled at a time: 256 MB
# Of a codebook's table, for each row: with more, sorting the places is quicker. Measured on a CPU.
CELLS_A_ROW = {"cpu": 2, "cuda": 64}


def table_pays(codes: Tensor, n_pairs: int, n_present: int) -> bool:
    """Whether to count codes (n, C) in a table of pairs × classes rather than by sorting."""
    return 0 < n_pairs * n_present <= CELLS_A_ROW.get(codes.device.type, 2) * len(codes)


def counted(codes: Tensor, columns: Tensor, n_pairs: int, present: Tensor) -> List:
    """How often codes (n, C) select each pair with each of their columns (n,).

    `present` (P,) are the columns that occur, in ascending order.
    """
    if not table_pays(codes, n_pairs, len(present)):
        places = flat_codes(codes, n_pairs) * CLASS_STRIDE + columns[:, None]
        distinct, counts = torch.unique(places, return_counts=True)
        return distinct, counts.to(torch.int32)
    place = torch.zeros(int(present[-1]) + 1, dtype=torch.int64, device=codes.device)
    place[present] = torch.arange(len(present), device=codes.device)
    position = place[columns]  # (n,)
    found = []
    for books in _groups(codes.shape[1], n_pairs * len(present)):
        shape = (books.stop - books.start, n_pairs, len(present))
        table = torch.zeros(shape, dtype=torch.int32, device=codes.device)
        accumulate.count(codes[:, books], position, table)
        found.append(_listed(table, books.start, present))
    return torch.cat([places for places, _ in found]), torch.cat([counts for _, counts in found])


def summed(places: Tensor, counts: Tensor, n_codebooks: int, n_pairs: int, Y: int) -> List:
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
        total = tally.join(total, other)
    return total


def sends_table(entries: int, cells: int) -> bool:
    """Whether N processes send less by summing tables of so many cells, in a ring, than by sending
    everyone lists as long as the longest: 2 (N − 1)/N · 4 · cells against (N − 1) · 12 · entries.
    """
    return 2 * 4 * cells < process_group.world_size() * 12 * entries


def _summed_tables(
    places: Tensor, counts: Tensor, n_codebooks: int, n_pairs: int, present: Tensor
) -> List:
    P, found = len(present), []
    for books in _groups(n_codebooks, n_pairs * P):
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


def _listed(table: Tensor, first_book: int, present: Tensor) -> List:
    """A table of counts (g, K, P) of the columns present (P,) as a list."""
    _, K, P = table.shape
    cell = torch.nonzero(table.view(-1))[:, 0]
    pair = torch.div(cell, P, rounding_mode="floor")
    places = (pair + first_book * K) * CLASS_STRIDE + present[cell - pair * P]
    return places, table.view(-1)[cell]


def _groups(n_codebooks: int, cells: int) -> Iterator[slice]:
    """Codebooks whose tables of so many cells each are filled together."""
    size = max(1, CELLS // max(1, cells))
    return (slice(i, min(i + size, n_codebooks)) for i in range(0, n_codebooks, size))
