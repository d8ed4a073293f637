"""Counting the rows of all processes of a job: all get the same state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb.kernels.counts import CLASS_STRIDE, NARROW, narrowed
from dkvb.rules.counts import sparse
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.class_sums import FULL, HALF, MASK, ClassSums, carried
from dkvb.rules.counts.sketch import Sketch, added
from dkvb.rules.counts.sparse import SparseCounts
from dkvb.rules.counts.state import CountState

CELLS = 1 << 26  # of a table of counts that is sent at a time: 256 MB


def update_together(
    state: CountState, codes: Tensor, class_index: Tensor, class_sums: ClassSums | None = None
) -> CountState:
    """`update` with the rows of all processes, each of which gives its own: none, if it has none.

    Class indices must mean the same classes everywhere. All get the same state, and the same bits
    as if one process had counted all rows.
    """
    C, K, Y = state.n_codebooks, state.n_pairs, len(state.per_class)
    empty = counts.grow(counts.start(C, K, state.device, state.clusters), Y)
    own = counts.update(empty, codes, class_index)
    per_class = process_group.all_reduce(own.per_class)
    together = replace(
        own,
        tallies=(all_reduced(own.whole, C, K, per_class),),
        per_class=per_class,
        class_sums=None if class_sums is None else _summed(class_sums),
        **_kept_rows(own),
    )
    if state.clusters is not None:
        R, _, G = state.clusters.sizes.shape
        by_cluster = all_reduced(sparse.whole(own.by_cluster), R * C, G, per_class)
        together = replace(together, by_cluster=(by_cluster,))
    return counts.merge(state, together)


def _kept_rows(own: CountState) -> dict[str, Any]:
    """The rows that all processes keep: as they are, or sketched where one has many."""
    if not any(process_group.all_gather_objects(own.sketch is not None)):
        kept = own.kept_codes if own.n_pairs > 1 << 16 else own.kept_codes.to(torch.uint16)
        return {
            "kept_codes": torch.cat([part.int() for part in process_group.all_gather(kept)]),
            "kept_class_index": torch.cat(process_group.all_gather(own.kept_class_index)),
        }
    wide = any(process_group.all_gather_objects(own.kept.codes.dtype == torch.int64))
    mine = replace(own.kept, codes=own.kept.codes.to(torch.int64 if wide else torch.int32))
    parts = (process_group.all_gather(part) for part in vars(mine).values())
    gathered = zip(*parts, strict=True)
    return {
        "kept_codes": own.kept_codes[:0],
        "kept_class_index": own.kept_class_index[:0],
        "sketch": added([Sketch(*one) for one in gathered]),
    }


def _summed(own: ClassSums) -> ClassSums:
    """The class sums of all processes."""
    largest = float(FULL) if own.high is not None else float(own.low.abs().max())
    if sum(process_group.all_gather_objects(largest)) < FULL:
        return ClassSums(process_group.all_reduce(own.low))
    high = torch.zeros_like(own.low) if own.high is None else own.high.clone()
    halves = (own.low >> HALF, own.low & MASK, high)
    return carried(*(process_group.all_reduce(part) for part in halves))


def all_reduced(
    own: SparseCounts, n_codebooks: int, n_pairs: int, per_class: Tensor
) -> SparseCounts:
    """The sum of all processes' lists: the same, bit for bit, in each of them.

    Lists are gathered, 12 bytes an entry, or the table of the classes present is summed, 4 bytes
    a cell, whichever sends less (`sends_table`). Together they count `per_class` (Y,) rows.
    """
    longest = max(process_group.all_gather_objects(len(own)))
    present = torch.nonzero(per_class)[:, 0]  # (P,)
    # No pair was selected more often than there are rows of its class.
    dtype = torch.int32 if int(per_class.max()) < NARROW else torch.int64
    if sends_table(longest, n_codebooks * n_pairs * len(present)):
        return _summed_tables(own, n_codebooks, n_pairs, present, dtype)
    counts = process_group.all_gather(own.counts.to(dtype))
    lists = zip(process_group.all_gather(own.places), counts, strict=True)
    found = sparse.whole([SparseCounts(*one) for one in lists])
    return SparseCounts(found.places, narrowed(found.counts))


def sends_table(entries: int, cells: int) -> bool:
    """Whether N processes send less by summing tables of so many cells, in a ring, than by sending
    everyone lists as long as the longest: 2 (N − 1)/N · 4 · cells against (N − 1) · 12 · entries.
    """
    return 2 * 4 * cells < process_group.world_size() * 12 * entries


def _summed_tables(
    own: SparseCounts, n_codebooks: int, n_pairs: int, present: Tensor, dtype: torch.dtype
) -> SparseCounts:
    places, P, lists = own.places, len(present), []
    size = max(1, CELLS // max(1, n_pairs * P))
    for start in range(0, n_codebooks, size):
        stop = min(start + size, n_codebooks)
        ends = torch.tensor([start, stop], device=places.device) * n_pairs * CLASS_STRIDE
        first, last = torch.searchsorted(places, ends).tolist()
        pair, class_index = places[first:last] // CLASS_STRIDE, places[first:last] % CLASS_STRIDE
        table = places.new_zeros((stop - start) * n_pairs * P, dtype=dtype)
        at = (pair - start * n_pairs) * P + torch.searchsorted(present, class_index)
        table[at] = own.counts[first:last].to(dtype)
        table = process_group.all_reduce(table)
        cell = torch.nonzero(table)[:, 0]
        pair = torch.div(cell, P, rounding_mode="floor")
        at = (pair + start * n_pairs) * CLASS_STRIDE + present[cell - pair * P]
        lists.append((at, table[cell]))
    found, counted = (torch.cat(same) for same in zip(*lists, strict=True))
    return SparseCounts(found, narrowed(counted))
