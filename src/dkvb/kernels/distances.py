"""Distances from a few rows to many that were laid out for it, as a service asks for them.

A matrix product of a few rows with 10,000 spends most of its time on reading and laying out the
many. Here these are laid out once, and the tile of the nearest-key search passes over them. Sums
are over DEPTH numbers at a time, so that float32 rounds little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dkvb.kernels._numba import compiled, huge_empty, run, take
from dkvb.kernels._simd import HEADS, PANEL, score_panels, score_panels_ahead
from dkvb.kernels.nearest.cpu import pack_heads, prepare

DEPTH = 128

F32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Panels:
    """N rows (N, p) in blocks of columns and panels of rows, and their squared norms."""

    rows: Tensor  # (N / PANEL, p / DEPTH, DEPTH, PANEL) float32
    squares: Tensor  # (N / PANEL, PANEL) float32, infinite where there is no row
    n_rows: int

    @classmethod
    def of(cls, b: Tensor) -> Panels:
        """Lay out rows b (N, p) float32."""
        columns = pad(b, (0, -b.shape[1] % DEPTH)).unflatten(1, (-1, DEPTH)).transpose(0, 1)
        squares = b.square().sum(dim=1).expand(len(columns), -1)
        found = prepare(columns, squares)
        # In the order in which they are read: memory gives what is contiguous twice as fast.
        panels = found.keys.transpose(0, 1)
        rows = huge_empty(panels.shape, panels.dtype).copy_(panels)
        return cls(rows, found.bias[0], len(b))

    def squared_distances(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared distances (n, N) of rows a (n, p) float32 to these, and the lowest (n,).

        With more than about 64 rows a matrix product is as fast.
        """
        n, (n_panels, blocks) = len(a), self.rows.shape[:2]
        columns = pad(a, (0, -a.shape[1] % DEPTH)).view(n, blocks, DEPTH)
        out, lowest = torch.empty((n, n_panels * PANEL)), torch.empty((n_panels, n))
        arrays = (columns, a.square().sum(dim=1), self.rows, self.squares, out, lowest)
        run(_distances, n_panels, *(one.numpy() for one in arrays))
        return out[:, : self.n_rows], lowest.amin(dim=0)


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
    (n, blocks, _), n_groups = a.shape, (len(a) + HEADS - 1) // HEADS
    groups = np.empty((blocks, n_groups, DEPTH, HEADS), np.float32)
    for block in range(blocks):
        pack_heads(a[:, block], groups[block])
    zeros, least = np.zeros((blocks, PANEL), np.float32), np.empty(HEADS, np.float32)
    scores = np.empty((HEADS, PANEL), np.float32)
    sums = np.empty((n_groups, HEADS, PANEL), np.float32)
    panel = take(state)
    while panel < len(b_squares):
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
                    out[i, panel * PANEL + k] = squared
                    nearest = min(nearest, squared)
                lowest[panel, i] = nearest
        panel = take(state)
