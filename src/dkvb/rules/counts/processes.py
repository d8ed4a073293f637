"""Counting the rows of all processes of a job: all get the same state."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb.kernels.counts import CLASS_STRIDE
from dkvb.rules.counts import sparse
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.sparse import SparseCounts
from dkvb.rules.counts.state import CountState

CELLS = 1 << 26  # of a table of counts that is sent at a time: 256 MB


def update_together(
    state: CountState, codes: Tensor, class_index: Tensor, class_sums: Tensor | None = None
) -> CountState:
    """`update` with the rows of all processes, each of which gives its own: none, if it has none.

    Class indices must mean the same classes everywhere. All get the same state, and the same bits
    as if one process had counted all rows.
    """
    C, K, Y = state.n_codebooks, state.n_pairs, len(state.per_class)
    empty = counts.grow(counts.start(C, K, state.device, state.clusters), Y)
    own = counts.update(empty, codes, class_index)
    kept = own.kept_codes if K > 1 << 16 else own.kept_codes.to(torch.uint16)  # half the bytes
    together = replace(
        own,
        tallies=(all_reduced(own.whole, C, K, Y),),
        per_class=process_group.all_reduce(own.per_class),
        kept_codes=torch.cat([k.int() for k in process_group.all_gather(kept)]),
        kept_class_index=torch.cat(process_group.all_gather(own.kept_class_index)),
        class_sums=None if class_sums is None else process_group.all_reduce(class_sums),
    )
    if state.clusters is not None:
        R, _, G = state.clusters.sizes.shape
        by_cluster = all_reduced(sparse.whole(own.by_cluster), R * C, G, Y)
        together = replace(together, by_cluster=(by_cluster,))
    return counts.merge(state, together)


def all_reduced(own: SparseCounts, n_codebooks: int, n_pairs: int, n_classes: int) -> SparseCounts:
    """The sum of all processes' lists: the same, bit for bit, in each of them.

    Lists are gathered, 12 bytes an entry, or the table of the classes present is summed, 4 bytes
    a cell, whichever sends less (`sends_table`).
    """
    longest = max(process_group.all_gather_objects(len(own)))
    seen = torch.zeros(n_classes, dtype=torch.int64, device=own.places.device)
    seen[own.places % CLASS_STRIDE] = 1
    present = torch.nonzero(process_group.all_reduce(seen, "notes"))[:, 0]  # (P,)
    if sends_table(longest, n_codebooks * n_pairs * len(present)):
        return _summed_tables(own, n_codebooks, n_pairs, present)
    lists = zip(
        process_group.all_gather(own.places), process_group.all_gather(own.counts), strict=True
    )
    return sparse.whole([SparseCounts(*one) for one in lists])


def sends_table(entries: int, cells: int) -> bool:
    """Whether N processes send less by summing tables of so many cells, in a ring, than by sending
    everyone lists as long as the longest: 2 (N − 1)/N · 4 · cells against (N − 1) · 12 · entries.
    """
    return 2 * 4 * cells < process_group.world_size() * 12 * entries


def _summed_tables(
    own: SparseCounts, n_codebooks: int, n_pairs: int, present: Tensor
) -> SparseCounts:
    places, P, lists = own.places, len(present), []
    size = max(1, CELLS // max(1, n_pairs * P))
    for start in range(0, n_codebooks, size):
        stop = min(start + size, n_codebooks)
        ends = torch.tensor([start, stop], device=places.device) * n_pairs * CLASS_STRIDE
        first, last = torch.searchsorted(places, ends).tolist()
        pair, class_index = places[first:last] // CLASS_STRIDE, places[first:last] % CLASS_STRIDE
        table = places.new_zeros((stop - start) * n_pairs * P, dtype=torch.int32)
        at = (pair - start * n_pairs) * P + torch.searchsorted(present, class_index)
        table[at] = own.counts[first:last]
        table = process_group.all_reduce(table)
        cell = torch.nonzero(table)[:, 0]
        pair = torch.div(cell, P, rounding_mode="floor")
        found = (pair + start * n_pairs) * CLASS_STRIDE + present[cell - pair * P]
        lists.append((found, table[cell]))
    return SparseCounts(*(torch.cat(same) for same in zip(*lists, strict=True)))
