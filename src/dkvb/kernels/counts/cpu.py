"""Counts of pairs and classes in compiled loops: a list is read once, from front to back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.hashing import scalar_bits
from dkvb.kernels._numba import check_codes, compiled, read_atomic, run, take, write_atomic
from dkvb.kernels._simd import prefetch
from dkvb.kernels.counts import oracle
from dkvb.kernels.counts.places import (
    CLASS_STRIDE,
    FRACTION,
    LARGEST,
    NARROW,
    Known,
    narrowed,
)

if TYPE_CHECKING:
    from dkvb.kernels.counts import Bounded

ROWS = 8  # that a worker takes at a time
HASHED = 4096  # rows that a worker takes at a time, to hash them
BLOCK_BOOKS, BLOCK_ROWS = 16, 512  # codes that are counted together: a block that stays in cache
CELLS = 1 << 26  # of a table of counts that is filled at a time: 256 MB
CELLS_PER_ROW = 2  # of a codebook's table: with more, sorting the places is quicker
FACTORS = 8  # of which the logarithm is taken together
LINE = 8  # float64 numbers in a cache line
FEW_SCORES = 1 << 13  # up to here, a matrix product takes longer to begin than to end
ALONE = 1 << 18  # factors below which a second worker costs more than it brings

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

_bits = compiled(scalar_bits)


def count(codes: Tensor, class_index: Tensor, n_pairs: int) -> tuple[Tensor, Tensor]:
    """In a table of pairs × classes, unless it would be mostly empty."""
    present = torch.nonzero(torch.bincount(class_index))[:, 0]  # (P,)
    C, P = codes.shape[1], len(present)
    if not 0 < n_pairs * P <= CELLS_PER_ROW * len(codes):
        return oracle.count(codes, class_index, n_pairs)
    rank = torch.zeros(int(present[-1]) + 1, dtype=torch.int64)
    rank[present] = torch.arange(P)
    rank, lists = rank[class_index], []
    size = max(1, CELLS // (n_pairs * P))  # codebooks whose tables are filled together
    for first in range(0, C, size):
        # Of one type, or the loop would be compiled for each.
        some = codes[:, first : first + size].to(torch.int32).contiguous()
        table = torch.zeros((some.shape[1], n_pairs, P), dtype=torch.int32)
        check_codes(some, rank, table)
        arrays = (some.numpy(), rank.numpy(), table.numpy())
        run(_count, -(-len(table) // BLOCK_BOOKS), *arrays)
        cell = torch.nonzero(table.view(-1))[:, 0]
        pair = torch.div(cell, P, rounding_mode="floor")
        places = (pair + first * n_pairs) * CLASS_STRIDE + present[cell - pair * P]
        lists.append((places, table.view(-1)[cell]))
    return torch.cat([places for places, _ in lists]), torch.cat([counts for _, counts in lists])


@compiled
def _count(state: Any, worker: int, workers: int, codes: I32, columns: I64, counts: I32) -> None:
    n, n_codebooks = codes.shape
    local = np.empty((BLOCK_BOOKS, BLOCK_ROWS), np.int32)
    task = take(state)
    while task * BLOCK_BOOKS < n_codebooks:
        first, last = task * BLOCK_BOOKS, min(task * BLOCK_BOOKS + BLOCK_BOOKS, n_codebooks)
        for start in range(0, n, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, n - start)
            # Turned round, so that one codebook's counts stay in cache while they are added to.
            for i in range(rows):
                for c in range(first, last):
                    local[c - first, i] = codes[start + i, c]
            for c in range(first, last):
                for i in range(rows):
                    counts[c, local[c - first, i], columns[start + i]] += 1
        task = take(state)


def join(
    places_a: Tensor, counts_a: Tensor, places_b: Tensor, counts_b: Tensor
) -> tuple[Tensor, Tensor]:
    """Walk through both lists at once."""
    most = len(places_a) + len(places_b)
    largest = sum(max(abs(int(end)) for end in c.aminmax()) for c in (counts_a, counts_b) if len(c))
    dtype = torch.int32 if largest < NARROW else torch.int64
    places, counts = torch.empty(most, dtype=torch.int64), torch.empty(most, dtype=dtype)
    tensors = (places_a, counts_a.to(dtype), places_b, counts_b.to(dtype), places, counts)
    length = _join(*[t.contiguous().numpy() for t in tensors])
    counts = counts[:length]
    return places[:length].clone(), counts.clone() if largest < NARROW else narrowed(counts)


@compiled
def _join(
    places_a: I64, counts_a: Any, places_b: I64, counts_b: Any, places: I64, counts: Any
) -> int:
    a = b = length = 0
    while a < len(places_a) or b < len(places_b):
        from_b = a == len(places_a) or (b < len(places_b) and places_b[b] < places_a[a])
        if from_b:
            place, count = places_b[b], counts_b[b]
            b += 1
        else:
            place, count = places_a[a], counts_a[a]
            a += 1
            if b < len(places_b) and places_b[b] == place:
                count += counts_b[b]
                b += 1
        if count != 0:
            places[length], counts[length] = place, count
            length += 1
    return length


def pool(found: Bounded, pairs: Tensor, n_columns: int) -> Tensor:
    """Row by row, pair by pair, entry by entry."""
    out = torch.zeros((len(pairs), n_columns), dtype=torch.int64)
    arrays = (t.contiguous().numpy() for t in (*found, pairs, out))
    run(_pool, -(-len(pairs) // ROWS), *arrays)
    return out


@compiled
def _pool(
    state: Any,
    worker: int,
    workers: int,
    places: I64,
    counts: Any,
    bounds: I64,
    pairs: I64,
    out: I64,
) -> None:
    n, n_codebooks = pairs.shape
    task = take(state)
    while task * ROWS < n:
        for i in range(task * ROWS, min(task * ROWS + ROWS, n)):
            for c in range(n_codebooks):
                for entry in range(bounds[pairs[i, c]], bounds[pairs[i, c] + 1]):
                    out[i, places[entry] & (CLASS_STRIDE - 1)] += counts[entry]
        task = take(state)


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
    """Row by row in the order of codebooks, so that a row's scores do not depend on its batch."""
    out = torch.zeros((len(pairs), len(constant)), dtype=torch.float64)
    known = known or Known(weights[:0], torch.zeros(0, dtype=torch.int8))
    tensors = (*own, *by_cluster, pairs, cells, shares, weights, constant, *known, out)
    arrays = (t.contiguous().numpy() for t in tensors)
    tasks = min(-(-len(pairs) // ROWS), 1 + pairs.numel() * len(constant) // ALONE)
    run(_pool_logs, tasks, *arrays)
    return out


@compiled
def _pool_logs(
    state: Any,
    worker: int,
    workers: int,
    places: I64,
    counts: Any,
    bounds: I64,
    cluster_places: I64,
    cluster_counts: Any,
    cluster_bounds: I64,
    pairs: I64,
    cells: I32,
    shares: F64,
    weights: F64,
    constant: F64,
    factors: F64,
    is_known: NDArray[np.int8],
    out: F64,
) -> None:
    (n, n_codebooks), n_columns, keeps = pairs.shape, len(constant), len(is_known) > 0
    n_levels = weights.shape[0]  # the pair itself, then its cluster in each partition
    inside, product = np.empty(n_columns), np.empty(n_columns)
    read = np.zeros(1, np.int64)
    task = take(state)
    while task * ROWS < n:
        for i in range(task * ROWS, min(task * ROWS + ROWS, n)):
            # Entries are all over the memory: the processor fetches many at once where no
            # computation comes in between.
            for c in range(n_codebooks):
                pair = pairs[i, c]
                if keeps and read_atomic(is_known, pair) != 0:
                    for y in range(0, n_columns, LINE):
                        prefetch(factors, pair * n_columns + y)
                    continue
                first, last = bounds[pair], bounds[pair + 1] - 1
                if first <= last:
                    read[0] += places[first] + counts[first] + places[last]
                for level in range(1, n_levels):
                    cell = cells[level - 1, pair]
                    first, last = cluster_bounds[cell], cluster_bounds[cell + 1] - 1
                    if first <= last:
                        read[0] += cluster_places[first] + cluster_counts[first]
                        read[0] += cluster_places[last]
            product[:] = 1.0
            for c in range(n_codebooks):
                pair = pairs[i, c]
                if keeps and read_atomic(is_known, pair) != 0:
                    for y in range(n_columns):
                        product[y] *= factors[pair, y]
                else:
                    inside[:] = constant
                    for entry in range(bounds[pair], bounds[pair + 1]):
                        y = places[entry] & (CLASS_STRIDE - 1)
                        inside[y] += weights[0, y] * counts[entry]
                    for level in range(1, n_levels):
                        cell = cells[level - 1, pair]
                        for entry in range(cluster_bounds[cell], cluster_bounds[cell + 1]):
                            y = cluster_places[entry] & (CLASS_STRIDE - 1)
                            inside[y] += weights[level, y] * shares[cell] * cluster_counts[entry]
                    product *= inside
                    if keeps:  # another worker may write the same numbers at the same time
                        factors[pair] = inside
                        write_atomic(is_known, pair, np.int8(1))
                # One logarithm for a few factors: more could leave the range of float64.
                if c % FACTORS == FACTORS - 1 or c == n_codebooks - 1:
                    out[i] += np.log(product)
                    product[:] = 1.0
        task = take(state)


def mean_scores(z: Tensor, steps: float, matrix: Tensor, unit: float, offset: Tensor) -> Tensor:
    """In one loop over a few rows; sums of whole numbers are exact in any order."""
    if len(z) * matrix.shape[1] > FEW_SCORES:
        return oracle.mean_scores(z, steps, matrix, unit, offset)
    out = torch.empty((len(z), matrix.shape[1]), dtype=torch.float64)
    arrays = [t.contiguous().numpy() for t in (z, matrix.T, offset, out)]
    _mean_scores(steps, unit, *arrays)
    return out


@partial(compiled, in_order=True)
def _mean_scores(steps: float, unit: float, z: F64, columns: F64, offset: F64, out: F64) -> None:
    n_columns, width = columns.shape
    whole, fraction = np.empty(width), np.empty(width)
    for i in range(len(z)):
        for j in range(width):
            row = min(max(z[i, j] * steps, -LARGEST), LARGEST)
            whole[j] = np.rint(row)
            fraction[j] = np.rint((row - whole[j]) * FRACTION)
        for y in range(n_columns):
            product = _dot(whole, columns[y]) + _dot(fraction, columns[y]) / FRACTION
            out[i, y] = product * unit + offset[y]


@compiled
def _dot(a: F64, b: F64) -> float:
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


def hash_codes(codes: Tensor, factors: Tensor) -> Tensor:
    """Row by row."""
    out = torch.empty(len(codes), dtype=torch.int64)
    arrays = (t.contiguous().numpy() for t in (codes.to(torch.int32), factors, out))
    run(_hash_codes, -(-len(codes) // HASHED), *arrays)
    return out


@compiled
def _hash_codes(state: Any, worker: int, workers: int, codes: I32, factors: I64, out: I64) -> None:
    n, n_codebooks = codes.shape
    task = take(state)
    while task * HASHED < n:
        for i in range(task * HASHED, min(task * HASHED + HASHED, n)):
            total = np.int64(0)
            for c in range(n_codebooks):
                total += np.int64(codes[i, c]) * factors[c]
            out[i] = _bits(3, total, 0, 0)
        task = take(state)
