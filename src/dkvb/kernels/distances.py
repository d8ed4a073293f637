"""Distances from a few rows to many that were laid out for it, and sums weighted by what follows
from them, as a service asks for both.

A matrix product of a few rows with 10,000 spends most of its time on reading and laying out the
many. Here these are laid out once, and the tile of the nearest-key search passes over them. Sums
are over DEPTH numbers at a time, so that float32 rounds little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.kernels._numba import compiled, huge_empty, run, take
from dkvb.kernels._simd import HEADS, PANEL, score_panels, score_panels_ahead
from dkvb.kernels.products import pack_heads, project_from

DEPTH = 128
PANELS = 8  # whose sums are added up by one worker

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
LOG2_E, LN_2 = 1 / math.log(2), math.log(2)


@dataclass(frozen=True, eq=False)
class Panels:
    """N rows (N, p) in blocks of columns and panels of rows, and their squared norms."""

    rows: F32  # (N / PANEL, p / DEPTH, DEPTH, PANEL) float32
    squares: F32  # (N / PANEL, PANEL) float32, infinite where there is no row
    n_rows: int

    @classmethod
    def of(cls, b: NDArray[Any]) -> Panels:
        """Lay out rows b (N, p), as float32."""
        b = np.asarray(b, np.float32)
        n_panels, blocks = -(-len(b) // PANEL), -(-b.shape[1] // DEPTH)
        whole = np.zeros((n_panels * PANEL, blocks * DEPTH), np.float32)
        whole[: len(b), : b.shape[1]] = b
        # In the order in which they are read: memory gives what is contiguous twice as fast.
        rows = huge_empty((n_panels, blocks, DEPTH, PANEL), np.float32)
        rows[:] = whole.reshape(n_panels, PANEL, blocks, DEPTH).transpose(0, 2, 3, 1)
        squares = np.full((n_panels, PANEL), np.inf, np.float32)
        squares.reshape(-1)[: len(b)] = np.square(b).sum(axis=1)
        return cls(rows, squares, len(b))

    def squared_distances(self, a: NDArray[Any]) -> tuple[F32, F32]:
        """Return squared distances (n, N) of rows a (n, p) to these, in float32, and the lowest
        (n,).

        With more than about 64 rows a matrix product is as fast.
        """
        columns, squares = self._columns(a)
        n_panels = len(self.rows)
        out = np.empty((len(a), n_panels * PANEL), np.float32)
        lowest = np.empty((n_panels, len(a)), np.float32)
        run(_distances, n_panels, columns, squares, self.rows, self.squares, out, lowest)
        return out[:, : self.n_rows], lowest.min(axis=0)

    def rbf_sums(self, a: NDArray[Any], gamma: float, weights: F64) -> tuple[F64, F32]:
        """Return Σ_j exp(−gamma ‖a_i − b_j‖²) weights[j] (n, Y) float64 of rows a (n, p) and
        weights (N, Y) float64, and the lowest squared distances (n,) float32.

        Distances, exponentials and sums of some rows follow each other in a cache.
        """
        columns, squares = self._columns(a)
        n_panels = len(self.rows)
        tasks = -(-n_panels // PANELS)
        sums = np.empty((tasks, len(a), weights.shape[1]))
        lowest = np.empty((n_panels, len(a)), np.float32)
        given = np.ascontiguousarray(weights[: self.n_rows])
        rows = columns, squares, self.rows, self.squares
        run(_rbf_sums, tasks, *rows, given, sums, lowest, gamma)
        _add_up(sums, lowest)
        return sums[0], lowest[0]

    def _columns(self, a: NDArray[Any]) -> tuple[F32, F32]:
        """Rows (n, blocks, DEPTH) of a (n, p), and their squared norms."""
        blocks = self.rows.shape[1]
        columns = np.zeros((len(a), blocks * DEPTH), np.float32)
        columns[:, : a.shape[1]] = a
        return columns.reshape(len(a), blocks, DEPTH), np.square(columns).sum(axis=1)


@compiled
def _distances(
    state: Any,
    worker: int,
    workers: int,
    a: F32,
    a_squares: F32,
    b: F32,
    b_squares: F32,
    out: F32,
    lowest: F32,
) -> None:
    groups, scratch = _pack(a), _make_scratch(a)
    panel = take(state)
    while panel < len(b_squares):
        start = panel * PANEL
        _squared(
            groups, a_squares, b, b_squares, panel, scratch, out[:, start : start + PANEL], lowest
        )
        panel = take(state)


@compiled
def _rbf_sums(
    state: Any,
    worker: int,
    workers: int,
    a: F32,
    a_squares: F32,
    b: F32,
    b_squares: F32,
    weights: F64,
    sums: F64,
    lowest: F32,
    gamma: float,
) -> None:
    n, groups, scratch = len(a), _pack(a), _make_scratch(a)
    squared, powers = np.empty((n, PANEL), np.float32), np.empty(PANEL, np.int64)
    picked, products = np.empty(HEADS, np.int64), np.empty((HEADS, weights.shape[1]), np.float64)
    task = take(state)
    while task < len(sums):
        sums[task] = 0
        for panel in range(task * PANELS, min(task * PANELS + PANELS, len(b_squares))):
            _squared(groups, a_squares, b, b_squares, panel, scratch, squared, lowest)
            start = panel * PANEL
            width = min(PANEL, len(weights) - start)
            kernel = np.empty((n, width), np.float64)
            for i in range(n):
                _exponential(squared[i], -gamma, powers, kernel[i])
            for first in range(0, n, HEADS):
                project_from(first, kernel, picked, weights[start : start + width], products)
                for i in range(first, min(first + HEADS, n)):
                    for y in range(weights.shape[1]):
                        sums[task, i, y] += products[i - first, y]
        task = take(state)


@partial(compiled, in_order=True)
def _exponential(x: F32, factor: float, powers: I64, out: F64) -> None:
    """out = exp(factor · x) where that is at most 1, with a relative error below 1e−9.

    numba calls the mathematical library once for each number; this is a loop over vectors.
    """
    as_floats = powers.view(np.float64)
    for k in range(len(out)):
        t = max(factor * np.float64(x[k]) * LOG2_E, -1000.0)
        whole = np.rint(t)
        r = (t - whole) * LN_2  # |r| ≤ ln(2)/2
        term = 1.0 + r * (1 / 9)
        term = 1.0 + r * (1 / 8) * term
        term = 1.0 + r * (1 / 7) * term
        term = 1.0 + r * (1 / 6) * term
        term = 1.0 + r * (1 / 5) * term
        term = 1.0 + r * (1 / 4) * term
        term = 1.0 + r * (1 / 3) * term
        term = 1.0 + r * (1 / 2) * term
        out[k] = 1.0 + r * term
        powers[k] = (np.int64(whole) + 1023) << 52  # the bits of 2 to this power
    for k in range(len(out)):
        out[k] *= as_floats[k]


@compiled
def _add_up(sums: F64, lowest: F32) -> None:
    """Into the first of each, in order, whoever computed them."""
    for part in range(1, len(sums)):
        sums[0] += sums[part]
    for panel in range(1, len(lowest)):
        for i in range(lowest.shape[1]):
            lowest[0, i] = min(lowest[0, i], lowest[panel, i])


@compiled
def _pack(a: F32) -> F32:
    """Rows a (n, blocks, DEPTH) as the tile reads them."""
    n, blocks, _ = a.shape
    groups = np.empty((blocks, (n + HEADS - 1) // HEADS, DEPTH, HEADS), np.float32)
    for block in range(blocks):
        pack_heads(a[:, block], groups[block])
    return groups


@compiled
def _make_scratch(a: F32) -> tuple[F32, F32, F32, F32]:
    """What `_squared` writes to on its way."""
    n, blocks, _ = a.shape
    zeros, least = np.zeros((blocks, PANEL), np.float32), np.empty(HEADS, np.float32)
    sums = np.empty(((n + HEADS - 1) // HEADS, HEADS, PANEL), np.float32)
    return zeros, least, np.empty((HEADS, PANEL), np.float32), sums


@compiled
def _squared(
    groups: F32,
    a_squares: F32,
    b: F32,
    b_squares: F32,
    panel: int,
    scratch: tuple[F32, F32, F32, F32],
    out: F32,
    lowest: F32,
) -> None:
    """Squared distances out (n, PANEL) to the rows of one panel, and the lowest, lowest[panel]."""
    zeros, least, scores, sums = scratch
    blocks, n_groups, n = groups.shape[0], groups.shape[1], len(a_squares)
    sums[:] = 0
    for block in range(blocks):  # whose part of the panel stays in the first cache
        for group in range(n_groups):  # −a·b
            head = groups[block, group]
            if group == 0:  # which reads rows from memory; the others find them in a cache
                score_panels_ahead(head, b[panel], zeros, block, block + 1, scores, least)
            else:
                score_panels(head, b[panel], zeros, block, block + 1, scores, least)
            sums[group] += scores
    for group in range(n_groups):
        for h in range(min(HEADS, n - group * HEADS)):
            i, nearest = group * HEADS + h, np.float32(np.inf)
            for k in range(PANEL):
                squared = 2 * sums[group, h, k] + (a_squares[i] + b_squares[panel, k])
                squared = max(squared, np.float32(0))
                out[i, k] = squared
                nearest = min(nearest, squared)
            lowest[panel, i] = nearest
