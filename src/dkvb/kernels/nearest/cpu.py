"""Heads and nearest keys on the CPU in float32: tiles in registers, keys blocked by codebook.

A task is one codebook and up to ROWS heads: the codebook's keys stay in one core's cache while all
these heads pass over them. Scores are never kept: after each block of keys a head looks at the
block only if the block's lowest score can still matter, which soon becomes rare. Compiling takes
about two seconds, once for a machine.

The same tile multiplies rows with the projection. DEPTH products are added up in float32, and these
sums in float64, so that rounding does not grow with the width of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dkvb.kernels._numba import compiled, run, run_together, take, wait
from dkvb.kernels._simd import HEADS, PANEL, first_bit, score_panels, score_panels_ahead, up_to
from dkvb.kernels.nearest.bounds import OVERFLOW, tolerance_of
from dkvb.kernels.products import pack_heads

UNIT_ROUNDOFF = 2.0**-24
ROWS = 256  # heads of a task
BLOCK = 4  # panels scored before their minimum is looked at
DEPTH = 64  # products of a head that are added up in float32
ALONE = 1 << 22  # products below which a second worker costs more than it brings
# The error of a head in float32, relative to ‖row‖·‖matrix‖: a row's number is rounded once, DEPTH
# products and sums once each, the head once more. The rest is for float64 and for underflow.
HEAD_ROUNDOFF = 2.0**-24 * (DEPTH + 4)

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Keys in panels: keys (C, P, d, PANEL), bias (C, P, PANEL), padded with keys never chosen."""

    keys: Tensor
    bias: Tensor
    n_pairs: int


def prepare(keys: Tensor, bias: Tensor) -> Prepared:
    """Lay out keys (C, K, d) and bias (C, K), which is infinite where a key must not be chosen."""
    n_pairs = keys.shape[1]
    missing = -n_pairs % PANEL
    keys = pad(keys.to(torch.float32), (0, 0, 0, missing))  # (C, P·PANEL, d)
    bias = pad(bias.to(torch.float32), (0, missing), value=torch.inf)
    panels = keys.unflatten(1, (-1, PANEL)).transpose(2, 3)  # (C, P, d, PANEL)
    return Prepared(panels.contiguous(), bias.unflatten(1, (-1, PANEL)).contiguous(), n_pairs)


def search(
    heads: Tensor,
    prepared: Prepared,
    tolerance: Tensor,
    top: int = 1,
    error: Tensor | float = 0.0,
    reach: Tensor | float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The `top` lowest scores bias − h·k: codes (n, C, top) int32, and where that is unsure (n, C).

    Ties go to the lowest index. Unsure means that two scores next to each other, up to the one
    after the last returned, differ by no more than `tolerance` (n, C), or that fewer than `top`
    keys may be chosen; codes of unsure rows are in range but may be repeated.

    If the exact head lies up to `error` (n, C) away and keys are at most `reach` (C,) long,
    `tolerance` contains 2 · reach · error. Less is needed where a near key has been found: to be
    nearer to the exact head, another key is at most 2 · error farther away from this one.
    """
    n, n_codebooks, _ = heads.shape
    if not 1 <= top <= prepared.n_pairs:
        raise ValueError(f"top: expected 1 to the number of pairs, {prepared.n_pairs}; got {top}")
    codes = torch.empty(n, n_codebooks, top, dtype=torch.int32)
    unsure = torch.empty(n, n_codebooks, dtype=torch.bool)
    chunks = -(-n // ROWS)
    run(
        _search,
        chunks * n_codebooks,
        heads.to(torch.float32).contiguous().numpy(),
        prepared.keys.numpy(),
        prepared.bias.numpy(),
        tolerance.to(torch.float32).contiguous().numpy(),
        torch.as_tensor(error, dtype=torch.float32).expand(n, n_codebooks).contiguous().numpy(),
        torch.as_tensor(reach, dtype=torch.float32).expand(n_codebooks).contiguous().numpy(),
        codes.numpy(),
        unsure.numpy(),
    )
    return codes, unsure


@compiled
def _search(
    state: Any,
    worker: int,
    workers: int,
    heads: F32,
    keys: F32,
    bias: F32,
    tolerance: F32,
    error: F32,
    reach: F32,
    codes: I32,
    unsure: NDArray[np.bool_],
) -> None:
    n, n_codebooks, key_dim = heads.shape
    chunks = (n + ROWS - 1) // ROWS
    scratch = make_scratch(n, key_dim, codes.shape[2])
    slack, moved = np.zeros(ROWS + HEADS, np.float32), np.zeros(ROWS, np.float32)
    task = take(state)
    while task < chunks * n_codebooks:
        book, start = task // chunks, task % chunks * ROWS
        stop = min(start + ROWS, n)
        for i in range(start, stop):
            slack[i - start], moved[i - start] = tolerance[i, book], error[i, book]
        found = codes[start:stop, book], unsure[start:stop, book]
        search_book(
            heads[start:stop, book],
            keys[book],
            bias[book],
            reach[book],
            slack,
            moved,
            scratch,
            found,
        )
        task = take(state)


@compiled
def make_scratch(n: int, key_dim: int, top: int) -> tuple[F32, F32, F32, I32]:
    """Packed heads, scores, and the lowest and nearest of each head of a task."""
    groups = np.empty(((min(n, ROWS) + HEADS - 1) // HEADS, key_dim, HEADS), np.float32)
    scores = np.empty((HEADS, BLOCK * PANEL), np.float32)
    lowest = np.empty((ROWS + HEADS, top + 1), np.float32)
    return groups, scores, lowest, np.empty((ROWS + HEADS, top + 1), np.int32)


@compiled
def search_book(
    heads: F32,
    keys: F32,
    bias: F32,
    reach: Any,
    slack: F32,
    moved: F32,
    scratch: tuple[F32, F32, F32, I32],
    found: tuple[I32, NDArray[np.bool_]],
) -> None:
    """Write codes (rows, top), and where they are unsure (rows,), of the heads of one codebook."""
    groups, scores, lowest, nearest = scratch
    codes, unsure = found
    rows, key_dim = heads.shape
    pack_heads(heads, groups)
    nearest_in_book(groups, keys, bias, slack, rows, scores, lowest, nearest)
    for i in range(rows):
        squared = np.float32(0)
        for j in range(key_dim):
            squared += heads[i, j] ** 2
        doubtful = False
        for rank in range(codes.shape[1]):
            codes[i, rank] = nearest[i, rank]
            distance = _distance(squared, lowest[i, rank] + slack[i])
            spare = 2 * moved[i] * max(np.float32(0), reach - distance - moved[i])
            # Where no key is left both are infinite, which counts as unsure.
            doubtful |= lowest[i, rank + 1] <= lowest[i, rank] + (slack[i] - spare)
        unsure[i] = doubtful


_tolerance = compiled(tolerance_of)


@compiled
def slack_of(key_dim: int, norm: float, reach: float, error: float) -> float:
    """The tolerance for a head in float32, infinite where its scores could overflow."""
    if not norm * reach <= OVERFLOW:
        return np.inf
    return float(_tolerance(key_dim, norm, reach, error, UNIT_ROUNDOFF))


@compiled
def _distance(squared: Any, score: Any) -> Any:
    """At most how far a key with this score lies from a head of this squared norm."""
    rounding = np.float32(1 + 2**-16)
    return np.sqrt(max(np.float32(0), squared * rounding + 2 * score)) * rounding


@compiled
def nearest_in_book(
    groups: F32,
    keys: F32,
    bias: F32,
    slack: F32,
    rows: int,
    scores: F32,
    lowest: F32,
    nearest: I32,
) -> None:
    """For each packed head the T lowest scores in one codebook, ascending, and whose they are.

    lowest, nearest (rows, T), where the last place is right only as far as it lies within `slack`
    (rows,) of the one before it; scores (HEADS, BLOCK · PANEL) is scratch.
    """
    top = lowest.shape[1] - 1
    lowest[:rows] = np.inf
    nearest[:rows] = 0
    block_lowest = np.empty(HEADS, np.float32)
    for first in range(0, keys.shape[0], BLOCK):
        last = min(first + BLOCK, keys.shape[0])
        for group in range((rows + HEADS - 1) // HEADS):
            score_panels(groups[group], keys, bias, first, last, scores, block_lowest)
            for h in range(min(HEADS, rows - group * HEADS)):
                i = group * HEADS + h
                limit = min(lowest[i, top], lowest[i, top - 1] + slack[i])
                if block_lowest[h] <= limit:
                    if top == 1:  # nothing above the block's own lowest score will matter
                        limit = min(limit, block_lowest[h] + slack[i])
                    for column in range(0, (last - first) * PANEL, PANEL):
                        limit = min(limit, lowest[i, top])
                        found = up_to(scores, h, column, limit)
                        while found != 0:
                            k = column + first_bit(found)
                            found &= found - 1
                            _insert(scores[h, k], first * PANEL + k, i, lowest, nearest)


@compiled
def _insert(score: float, key: int, i: int, lowest: F32, nearest: I32) -> None:
    """Put a score into the ascending lowest[i], after its equals, dropping the last."""
    place = lowest.shape[1] - 1
    if score < lowest[i, place]:
        while place > 0 and score < lowest[i, place - 1]:
            lowest[i, place], nearest[i, place] = lowest[i, place - 1], nearest[i, place - 1]
            place -= 1
        lowest[i, place], nearest[i, place] = score, key


def prepare_matrices(matrices: Tensor) -> Tensor:
    """Lay out matrices (C, p, d) float32 in panels (C·d / PANEL, p / DEPTH, DEPTH, PANEL)."""
    flat = matrices.permute(1, 0, 2).flatten(1)  # (p, C·d)
    flat = pad(flat, (0, -flat.shape[1] % PANEL, 0, -flat.shape[0] % DEPTH))
    blocks = flat.view(-1, DEPTH, flat.shape[1] // PANEL, PANEL)
    return blocks.permute(2, 0, 1, 3).contiguous()


def search_rows(
    rows: Tensor,
    panels: Tensor,
    prepared: Prepared,
    row_error: Tensor,
    book_error: Tensor,
    reach: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (n, C, 1) of rows (n, p) float64, where they are unsure (n, C), and the heads that were
    searched, (n, C, d) float32, times powers of two scale (C,).

    `panels` are the matrices of the projection. An exact head lies up to row_error (n,) ·
    book_error (C,) away from its head, both scaled; scaled keys are at most `reach` (C,) long.
    """
    n, (n_codebooks, key_dim) = len(rows), (len(scale), prepared.keys.shape[2])
    heads = torch.empty(n, n_codebooks, key_dim)
    codes = torch.empty(n, n_codebooks, 1, dtype=torch.int32)
    unsure = torch.empty(n, n_codebooks, dtype=torch.bool)
    packed = torch.empty(panels.shape[1], -(-n // HEADS), DEPTH, HEADS)
    column_scale = scale.repeat_interleave(key_dim)
    layout = (rows, panels, column_scale, packed, torch.empty(n, dtype=torch.float64))
    index = (prepared.keys, prepared.bias, row_error, book_error, reach)
    tensors = (*layout, heads.view(n, -1), heads, *index, codes, unsure)
    products = heads.numel() * (rows.shape[1] + prepared.n_pairs)
    tasks = min(len(panels) + n_codebooks * -(-n // ROWS), 1 + products // ALONE)
    run_together(_search_rows, tasks, *(one.contiguous().numpy() for one in tensors))
    return codes, unsure, heads


@compiled
def _search_rows(
    state: Any,
    worker: int,
    workers: int,
    rows: F64,
    panels: F32,
    column_scale: F64,
    packed: F32,
    units: F64,
    columns: F32,
    heads: F32,
    keys: F32,
    bias: F32,
    row_error: F64,
    book_error: F64,
    reach: F64,
    codes: I32,
    unsure: NDArray[np.bool_],
) -> None:
    n, n_codebooks, key_dim = heads.shape
    n_groups, n_panels, chunks = packed.shape[1], len(panels), (n + ROWS - 1) // ROWS
    for group in range(n_groups * worker // workers, n_groups * (worker + 1) // workers):
        _pack(rows, group, units, packed)
    wait(state, 1, workers)

    sums = np.empty((ROWS, PANEL), np.float64)
    task = take(state)
    while task < chunks * n_panels:
        panel, start = task // chunks, task % chunks * ROWS
        stop = min(start + ROWS, n)
        _multiply(packed, panels[panel], start, stop, sums)
        first = panel * PANEL
        last = min(first + PANEL, n_codebooks * key_dim)
        for i in range(start, stop):
            for column in range(first, last):
                factor = units[i] * column_scale[column]
                columns[i, column] = sums[i - start, column - first] * factor
        task = take(state)
    wait(state, 2, workers)

    scratch = make_scratch(n, key_dim, 1)
    slack, moved = np.zeros(ROWS + HEADS, np.float32), np.zeros(ROWS, np.float32)
    task -= chunks * n_panels
    while task < chunks * n_codebooks:
        book, start = task // chunks, task % chunks * ROWS
        stop = min(start + ROWS, n)
        for i in range(start, stop):
            squared = 0.0
            for j in range(key_dim):
                squared += np.float64(heads[i, book, j]) ** 2
            norm, error = np.sqrt(squared), row_error[i] * book_error[book]
            slack[i - start], moved[i - start] = slack_of(key_dim, norm, reach[book], error), error
        found = codes[start:stop, book], unsure[start:stop, book]
        search_book(
            heads[start:stop, book],
            keys[book],
            bias[book],
            reach[book],
            slack,
            moved,
            scratch,
            found,
        )
        task = take(state) - chunks * n_panels


@compiled
def _multiply(packed: F32, columns: F32, start: int, stop: int, sums: F64) -> None:
    """Products of packed rows start … stop − 1 with one panel of columns: sums (rows, PANEL)."""
    blocks = len(columns)
    zeros, least = np.zeros((blocks, PANEL), np.float32), np.empty(HEADS, np.float32)
    products = np.empty((HEADS, PANEL), np.float32)
    for i in range(stop - start):
        for k in range(PANEL):
            sums[i, k] = 0
    for block in range(blocks):
        for group in range(start // HEADS, (stop + HEADS - 1) // HEADS):
            rows = packed[block, group]
            if group == start // HEADS:  # which reads columns from memory; then they are in a cache
                score_panels_ahead(rows, columns, zeros, block, block + 1, products, least)
            else:
                score_panels(rows, columns, zeros, block, block + 1, products, least)
            for h in range(min(HEADS, stop - group * HEADS)):
                for k in range(PANEL):
                    sums[group * HEADS - start + h, k] += products[h, k]


@compiled
def _pack(rows: F64, group: int, units: F64, packed: F32) -> None:
    """Copy HEADS rows to packed[:, group], divided by a power of two, which units keeps."""
    n, width = rows.shape
    for h in range(HEADS):
        i = min(group * HEADS + h, n - 1)
        largest = 0.0
        for j in range(width):
            largest = max(largest, abs(rows[i, j]))
        unit = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
        units[i] = unit
        for block in range(packed.shape[0]):
            for j in range(DEPTH):
                at = block * DEPTH + j
                inside = at < width
                packed[block, group, j, h] = rows[i, at] / unit if inside else 0.0
