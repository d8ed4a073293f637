"""Weighted points: what the solver sees of a memory.

A point stands for rows of one target: an example, the copies of one, or a cell, whose rows share a
key. It lies at their mean and knows how far they spread around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.conditioning import Conditioning, Moments
from dkvb.memory.kernel import squared_norms

Rows = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

CHUNK = 4096
COPIES = 1e-6  # of their squared length: rows that spread less are copies, but for rounding
EXACT_NUMBERS = 1 << 22  # of conditioned rows that are reckoned with in float64; float32 beyond


class Memory(Protocol):
    """What was learned, as entries: examples, or cells. An example is an entry of one row."""

    keeps_rows: bool

    def __len__(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def targets(self) -> Places: ...
    @property
    def counts(self) -> Places: ...
    @property
    def hashes(self) -> Places: ...
    @property
    def order(self) -> Places: ...
    def moments(self) -> Moments: ...
    def units(self, which: Places, by: Conditioning) -> tuple[Rows, F64]: ...


@dataclass(frozen=True, eq=False)
class Points:
    """N points in the conditioned space."""

    z: F32  # (N, p) means
    spread: F64  # (N,) total variance of the rows around their mean
    counts: F64  # (N,) rows
    targets: Places  # (N,)

    def __len__(self) -> int:
        return len(self.z)

    def __getitem__(self, which: Any) -> Points:
        return Points(self.z[which], self.spread[which], self.counts[which], self.targets[which])


def working(z: F32) -> Rows:
    """Conditioned rows in the precision in which they are reckoned with."""
    return z.astype(np.float64) if z.size <= EXACT_NUMBERS else z


def points_of(memory: Memory, which: Places, group: Places, by: Conditioning) -> Points:
    """The points that entries `which` (k,) of a memory make up: those of group g are point g.

    Groups are numbered from 0 without a gap. Sums are over entries in the order of `which`. Rows
    are averaged before centring, and their spread there is taken to grow in the linear map as the
    variance of all rows does: its exact figure predicts no better (measured).
    """
    n = int(group.max(initial=-1)) + 1
    order = np.argsort(group, kind="stable")
    which, group = which[order], group[order]
    bounds = np.searchsorted(group, np.arange(n + 1))
    weights = memory.counts[which].astype(np.float64)
    counts = np.bincount(group, weights, minlength=n).astype(np.float64)
    z, spread, done = np.empty((n, by.output_width), np.float32), np.zeros(n), 0
    while done < n:  # whole points, at least one at a time
        first = bounds[done]
        end = max(done + 1, int(np.searchsorted(bounds, first + CHUNK, side="right")) - 1)
        rows, own = memory.units(which[first : bounds[end]], by)
        n_entries, at = np.diff(bounds[done : end + 1]), bounds[done:end] - first
        if len(rows) > end - done:
            share = weights[first : bounds[end]] / np.repeat(counts[done:end], n_entries)
            squares = np.add.reduceat(share * (squared_norms(rows) + own), at)
            rows *= share[:, None].astype(rows.dtype)
            rows = np.add.reduceat(rows, at, axis=0)
            inside = squares - squared_norms(rows)
            inside[inside < COPIES * squares] = 0
            own = np.where(n_entries == 1, own[at], inside)
        z[done:end], spread[done:end] = by.of_units(rows), own * by.stretch
        done = end
    return Points(z, spread, counts, memory.targets[which[bounds[:-1]]])
