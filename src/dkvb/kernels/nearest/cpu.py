"""Nearest keys on the CPU: scores in float32, tiles in registers, keys blocked by codebook.

A task is one codebook and up to ROWS heads: the codebook's keys stay in one core's cache while all
these heads pass over them. Scores are never kept: after each block of keys a head looks at the
block only if the block's lowest score can still matter, which soon becomes rare. Compiling takes
about two seconds, once for a machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dkvb.kernels._numba import compiled, run, take
from dkvb.kernels._simd import HEADS, PANEL, first_bit, score_panels, up_to

UNIT_ROUNDOFF = 2.0**-24
ROWS = 256  # heads of a task
BLOCK = 4  # panels scored before their minimum is looked at

F32 = NDArray[np.float32]
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
    heads: Tensor, prepared: Prepared, tolerance: Tensor, top: int = 1
) -> tuple[Tensor, Tensor]:
    """The `top` lowest scores bias − h·k: codes (n, C, top) int32, and where that is unsure (n, C).

    Ties go to the lowest index. Unsure means that two scores next to each other, up to the one
    after the last returned, differ by no more than `tolerance` (n, C), or that fewer than `top`
    keys may be chosen; codes of unsure rows are in range but may be repeated.
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
    codes: I32,
    unsure: NDArray[np.bool_],
) -> None:
    n, n_codebooks, key_dim = heads.shape
    top = codes.shape[2]
    chunks = (n + ROWS - 1) // ROWS
    groups = np.empty(((min(n, ROWS) + HEADS - 1) // HEADS, key_dim, HEADS), np.float32)
    lowest = np.empty((ROWS + HEADS, top + 1), np.float32)
    nearest = np.empty((ROWS + HEADS, top + 1), np.int32)
    scores = np.empty((HEADS, BLOCK * PANEL), np.float32)
    slack = np.zeros(ROWS + HEADS, np.float32)
    task = take(state)
    while task < chunks * n_codebooks:
        book, start = task // chunks, task % chunks * ROWS
        rows = min(ROWS, n - start)
        for i in range(rows):
            slack[i] = tolerance[start + i, book]
        pack_heads(heads[start : start + rows, book], groups)
        nearest_in_book(groups, keys[book], bias[book], slack, rows, scores, lowest, nearest)
        for i in range(rows):
            doubtful = False
            for rank in range(top):
                codes[start + i, book, rank] = nearest[i, rank]
                # Where no key is left both are infinite, which counts as unsure.
                doubtful |= lowest[i, rank + 1] <= lowest[i, rank] + slack[i]
            unsure[start + i, book] = doubtful
        task = take(state)


@compiled
def pack_heads(heads: F32, groups: F32) -> None:
    """Negate heads (rows, d), which may be strided, into groups (rows / HEADS, d, HEADS)."""
    rows, key_dim = heads.shape
    for i in range((rows + HEADS - 1) // HEADS * HEADS):
        for j in range(key_dim):
            groups[i // HEADS, j, i % HEADS] = -heads[min(i, rows - 1), j]


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
