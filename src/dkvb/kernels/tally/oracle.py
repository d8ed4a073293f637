"""Sorted lists of counts, the obvious way."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = 1 << 20
CHUNK_ELEMENTS = 1 << 22  # entries that a chunk of pairs may find


def join(
    places_a: Tensor, counts_a: Tensor, places_b: Tensor, counts_b: Tensor
) -> tuple[Tensor, Tensor]:
    """Sort everything, add what stands at the same place."""
    places, order = torch.sort(torch.cat([places_a, places_b]))
    counts = torch.cat([counts_a, counts_b])[order].long()
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts)
    kept = total != 0
    return distinct[kept], total[kept].to(torch.int32)


def pool(
    places: Tensor, counts: Tensor, bounds: Tensor, pairs: Tensor, table: Tensor, n_columns: int
) -> Tensor:
    """Gather the entries of a chunk of pairs, look up their counts, add them to their rows."""
    n, C = pairs.shape
    out = torch.zeros(n * n_columns, dtype=torch.int64, device=pairs.device)
    step = max(1, CHUNK_ELEMENTS // max(1, n_columns))
    for first, part in zip(range(0, n * C, step), pairs.flatten().split(step), strict=True):
        low = bounds[part]
        length = bounds[part + 1] - low
        before = torch.cumsum(length, 0) - length
        reader = torch.repeat_interleave(length)  # (e,) which of the pairs
        entry = torch.arange(len(reader), device=pairs.device) + (low - before)[reader]
        place = (first + reader) // C * n_columns + places[entry] % COLUMNS
        out.index_add_(0, place, table[counts[entry].long()])
    return out.view(n, n_columns)
