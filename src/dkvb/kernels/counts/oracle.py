"""Counts of pairs and classes, the obvious way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.counts.places import CLASS_STRIDE, FRACTION, LARGEST, narrowed

if TYPE_CHECKING:
    from dkvb.kernels.counts import Bounded
    from dkvb.kernels.counts.places import Known

CHUNK_ELEMENTS = 1 << 22  # entries that a chunk of pairs may find


def count(codes: Tensor, class_index: Tensor, n_pairs: int) -> tuple[Tensor, Tensor]:
    """How often codes (n, C) of integers select each pair with each of their classes (n,) int64: a
    list. Places are sorted some rows at a time, since that takes several times their memory."""
    first_pairs = torch.arange(codes.shape[1], device=codes.device) * n_pairs
    lists = [(class_index[:0], class_index[:0].int())]
    for first, part in _chunks(codes, max(1, codes.shape[1])):
        rows = slice(first, first + len(part))
        places = (part.long() + first_pairs) * CLASS_STRIDE + class_index[rows, None]
        distinct, counts = torch.unique(places, return_counts=True)
        lists.append((distinct, narrowed(counts)))
    while len(lists) > 1:  # lists of similar length
        lists = [
            join(*lists[i], *lists[i + 1]) if i + 1 < len(lists) else lists[i]
            for i in range(0, len(lists), 2)
        ]
    return lists[0]


def join(
    places_a: Tensor, counts_a: Tensor, places_b: Tensor, counts_b: Tensor
) -> tuple[Tensor, Tensor]:
    """One list with the sums of two; places where they are zero are dropped."""
    places, order = torch.sort(torch.cat([places_a, places_b]))
    counts = torch.cat([counts_a, counts_b])[order].long()
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts)
    kept = total != 0
    return distinct[kept], narrowed(total[kept])


def pool(found: Bounded, pairs: Tensor, n_columns: int) -> Tensor:
    """Σ over the pairs (n, C) of a row of the counts of each class: (n, n_columns) int64."""
    n, C = pairs.shape
    out = torch.zeros(n * n_columns, dtype=torch.int64, device=pairs.device)
    for first, part in _chunks(pairs.flatten(), n_columns):
        reader, entry = _entries(found, part)
        place = (first + reader) // C * n_columns + found.places[entry] % CLASS_STRIDE
        out.index_add_(0, place, found.counts[entry].long())
    return out.view(n, n_columns)


def pool_logs(
    own: Bounded,
    by_cluster: Bounded,
    pairs: Tensor,
    cells: Tensor,
    shares: Tensor,
    weights: Tensor,
    constant: Tensor,
    known: Known | None = None,
) -> Tensor:
    """Σ over the pairs p (n, C) of a row, of log of (constant[y] + weights[0, y] · own[p, y] +
    Σ over partitions r of weights[1 + r, y] · shares[q] · by_cluster[q, y]), where q is the cluster
    of p in partition r: cells (R, pairs). shares (cells of `by_cluster`,), weights (1 + R, Y) and
    constant (Y,) are float64, and so is the result (n, Y). What is inside of the logarithm may be
    kept in `known` for the same lists and weights."""
    C, Y = pairs.shape[1], len(constant)
    out = [torch.zeros((0, Y), dtype=torch.float64, device=pairs.device)]
    for _, part in _chunks(pairs, C * Y):
        inside = constant.repeat(part.numel())  # (r · C · Y,)
        reader, entry = _entries(own, part.flatten())
        column = own.places[entry] % CLASS_STRIDE
        inside.index_add_(0, reader * Y + column, weights[0, column] * own.counts[entry])
        for partition in range(len(weights) - 1):
            own_cells = cells[partition, part.flatten()].long()
            reader, entry = _entries(by_cluster, own_cells)
            column = by_cluster.places[entry] % CLASS_STRIDE
            worth = (
                weights[1 + partition, column]
                * shares[own_cells[reader]]
                * by_cluster.counts[entry]
            )
            inside.index_add_(0, reader * Y + column, worth)
        out.append(inside.view(-1, C, Y).log().sum(dim=1))
    return torch.cat(out)


def mean_scores(z: Tensor, steps: float, matrix: Tensor, unit: float, offset: Tensor) -> Tensor:
    """Rows z (n, m) float64 in steps times a matrix (m, Y) of whole numbers in a unit, plus an
    offset (Y,): (n, Y) float64. A row is a whole number and a fraction in whole numbers, whose
    products with the matrix are exact in any order."""
    rows = (z * steps).clamp_(-LARGEST, LARGEST)
    whole = rows.round()
    fraction = rows.sub_(whole).mul_(FRACTION).round_()
    return (whole @ matrix + fraction @ matrix / FRACTION) * unit + offset


def hash_codes(codes: Tensor, factors: Tensor) -> Tensor:
    """`bits(3, Σ codes · factors, 0, 0)` of each row of codes (n, C) of integers, with factors (C,)
    int64 and sums that wrap: (n,) int64."""
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
