"""Sorted lists of counts, the obvious way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.counts.places import CLASS_STRIDE

if TYPE_CHECKING:
    from dkvb.kernels.counts import Bounded

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


def pool(found: Bounded, pairs: Tensor, n_columns: int) -> Tensor:
    """Gather the entries of a chunk of pairs, add them to their rows."""
    n, C = pairs.shape
    out = torch.zeros(n * n_columns, dtype=torch.int64, device=pairs.device)
    for first, part in _chunks(pairs.flatten(), n_columns):
        reader, entry = _entries(found, part)
        place = (first + reader) // C * n_columns + found.places[entry] % CLASS_STRIDE
        out.index_add_(0, place, found.counts[entry].long())
    return out.view(n, n_columns)


def pool_logs(
    own: Bounded,
    regional: Bounded,
    pairs: Tensor,
    regions: Tensor,
    shares: Tensor,
    weights: Tensor,
    constant: Tensor,
) -> Tensor:
    """What stands in the logarithm of each pair and class, then the sum of logarithms."""
    C, Y = pairs.shape[1], len(constant)
    out = [torch.zeros((0, Y), dtype=torch.float64, device=pairs.device)]
    for first, part in _chunks(pairs, C * Y):
        inside = constant.repeat(part.numel())  # (r · C · Y,)
        reader, entry = _entries(own, part.flatten())
        column = own.places[entry] % CLASS_STRIDE
        inside.index_add_(0, reader * Y + column, weights[0, column] * own.counts[entry])
        for cut in range(len(weights) - 1):
            cells = regions[first : first + len(part), cut * C : (cut + 1) * C].flatten()
            reader, entry = _entries(regional, cells)
            column = regional.places[entry] % CLASS_STRIDE
            worth = weights[1 + cut, column] * shares[cells[reader]] * regional.counts[entry]
            inside.index_add_(0, reader * Y + column, worth)
        out.append(inside.view(-1, C, Y).log().sum(dim=1))
    return torch.cat(out)


def hash_codes(codes: Tensor, factors: Tensor) -> Tensor:
    """Chunk by chunk, as int64."""
    parts = [(part.long() * factors).sum(dim=1) for _, part in _chunks(codes, codes.shape[1])]
    return bits(3, torch.cat(parts) if parts else factors[:0], 0, 0)


def _chunks(rows: Tensor, per_row: int) -> Iterator[tuple[int, Tensor]]:
    step = max(1, CHUNK_ELEMENTS // max(1, per_row))
    return zip(range(0, len(rows), step), rows.split(step), strict=False)


def _entries(found: Bounded, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of pairs (p,), and for each which of the pairs it belongs to, both (e,)."""
    low = found.bounds[pairs]
    length = found.bounds[pairs + 1] - low
    before = torch.cumsum(length, 0) - length
    reader = torch.repeat_interleave(length)
    return reader, torch.arange(len(reader), device=pairs.device) + (low - before)[reader]
