"""The memory of sums: for every key and class that met, how many rows there were and their sum.

A cell holds no row, but a cell of one row is that row. Rows are added up as they are before
centring (signed root or not, unit length), in units of 2⁻¹⁴, so that sums are exact integers: any
order, batching, split, merge and subtraction give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.blocks import Blocks
from dkvb.memory.coders import Coder
from dkvb.memory.conditioning import Conditioning, Moments, units

Rows = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

UNIT = 1 << 14  # a number of a unit row is a whole number of these: one row fits in int16
MOST_ROWS = 1 << 40  # in a cell, so that sums fit in int64
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Cells:
    """Keys, targets, counts and sums of E cells, in the order in which they were first met."""

    coder: Coder
    hashes: Places  # (E,) what names the key
    targets: Places  # (E,)
    counts: Places  # (E,)
    sums: Blocks  # (E, m) int64, in units of 1 / UNIT

    keeps_rows = False

    @classmethod
    def empty(cls, coder: Coder) -> Cells:
        """No cell."""
        none = np.zeros(0, np.int64)
        return cls(coder, none, none, none, Blocks.of(np.zeros((0, coder.width), np.int64)))

    @classmethod
    def of(cls, coder: Coder, X: F32, targets: Places) -> Cells:
        """The cells of embeddings (n, m) with targets (n,)."""
        found = cls.empty(coder)
        for start in range(0, len(X), CHUNK):
            part = slice(start, start + CHUNK)
            rows = quantised(X[part], coder.power)
            found = found.plus(_summed(coder, coder.codes(X[part], rows), targets[part], rows))[0]
        return found

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def width(self) -> int:
        return self.sums.width

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @property
    def single_row_share(self) -> float:
        """The share of cells that hold one row, and so are that row."""
        return float((self.counts == 1).mean()) if len(self) else 0.0

    @cached_property
    def order(self) -> Places:
        """The canonical order (E,)."""
        return np.lexsort((self.targets, self.hashes))

    def canonical(self) -> Cells:
        """The same cells in canonical order."""
        order = self.order
        if (order == np.arange(len(order))).all():
            return self
        sums = Blocks.of(self.sums[order])
        return Cells(self.coder, self.hashes[order], self.targets[order], self.counts[order], sums)

    def means(self, which: Places) -> F64:
        """The mean rows (k, m), before centring, of some cells."""
        mean: F64 = self.sums[which] / (self.counts[which, None] * float(UNIT))
        return mean

    def units(self, which: Places, by: Conditioning) -> tuple[Rows, F64]:
        """Mean rows (k, m) before centring, and how far (k,) the rows of each cell spread.

        Rows have unit length, so that the length of their mean says how far they spread.
        """
        mean = self.means(which)
        spread = np.maximum(1 - np.einsum("ij,ij->i", mean, mean), 0)
        return mean, np.where(self.counts[which] == 1, 0, spread)

    def moments(self) -> Moments:
        """Sums over all rows; outer products of means, and what spreads around these, evenly, where
        there are more cells than dimensions."""
        width = self.width
        found = Moments(self.coder.power, self.n_rows, np.zeros(width), None, None)
        if len(self) > width:
            found.moment = np.zeros((width, width))
        inside = 0.0
        for start in range(0, len(self), CHUNK):
            which = self.order[start : start + CHUNK]
            mean, counts = self.means(which), self.counts[which].astype(np.float64)
            found.total += counts @ mean
            inside += float(counts @ np.maximum(1 - np.einsum("ij,ij->i", mean, mean), 0))
            if found.moment is not None:
                found.moment += (mean * counts[:, None]).T @ mean
        if found.moment is not None:
            found.moment[np.diag_indices(width)] += inside / width
        return found

    # ---------------------------------------------------------------------------------- changing
    def plus(self, other: Cells) -> tuple[Cells, Places, int]:
        """With the rows of other cells; the positions of cells that changed, and how many are
        new."""
        places = self.positions(other.hashes, other.targets)
        known, touched = places >= 0, places[places >= 0]
        counts = self.counts.copy()
        counts[touched] += other.counts[known]
        if counts.max(initial=0) > MOST_ROWS:
            raise ValueError(f"X: expected at most {MOST_ROWS:,} rows in a cell; got more")
        sums = self.sums
        if len(touched):
            more = other.sums[np.nonzero(known)[0]]
            sums = sums.replaced(touched, sums[touched] + more)
        new = np.nonzero(~known)[0]
        together = Cells(
            self.coder,
            np.concatenate([self.hashes, other.hashes[new]]),
            np.concatenate([self.targets, other.targets[new]]),
            np.concatenate([counts, other.counts[new]]),
            sums.appended(other.sums[new]) if len(new) else sums,
        )
        return together, touched, len(new)

    def minus(self, other: Cells, names: str) -> tuple[Cells, Places]:
        """Without the rows of other cells; the positions of cells that changed, of which those
        that are left without rows are still there."""
        places = self.positions(other.hashes, other.targets)
        strangers = other.counts[places < 0].sum()
        known = np.maximum(places, 0)
        left = np.where(places < 0, 0, self.counts[known] - other.counts) if len(self) else -1
        strangers += np.maximum(-left, 0).sum()
        if not strangers:
            sums = self.sums[places] - other.sums[np.arange(len(other))]
            lengths = np.sqrt(np.einsum("ij,ij->i", sums.astype(np.float64), sums))
            room = left * (UNIT + np.sqrt(self.width))  # rows are rounded to whole units
            strangers = other.counts[(lengths > room) | ((left == 0) & (lengths > 0))].sum()
        if strangers:
            raise ValueError(
                f"{names}: expected at most rows that were learned with these targets; "
                f"got {int(strangers)} others; nothing was changed"
            )
        counts = self.counts.copy()
        counts[places] = left
        return replace(self, counts=counts, sums=self.sums.replaced(places, sums)), places

    def kept(self, mask: NDArray[np.bool_]) -> Cells:
        """Only the cells where a mask (E,) is true."""
        return Cells(
            self.coder,
            self.hashes[mask],
            self.targets[mask],
            self.counts[mask],
            self.sums.kept(mask),
        )

    def with_targets(self, targets: Places) -> Cells:
        """The same cells with other targets (E,), by which no two become one."""
        return replace(self, targets=targets)

    def regrouped(self, targets: Places) -> Cells:
        """The same rows with other targets (E,), by which cells may become one."""
        return _joined(replace(self, targets=targets))

    def positions(self, hashes: Places, targets: Places) -> Places:
        """Where each of some cells (k,) stands among these; −1 where there is none."""
        mine = np.concatenate([self.hashes, hashes]), np.concatenate([self.targets, targets])
        order = np.lexsort((np.arange(len(mine[0])), mine[1], mine[0]))
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(mine[0][order]) != 0) | (np.diff(mine[1][order]) != 0)
        leader = order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
        found = np.empty(len(order), np.int64)
        found[order] = leader
        asked: Places = found[len(self) :]
        known: Places = np.where(asked < len(self), asked, -1)
        return known


def quantised(X: F32, power: float) -> Places:
    """Rows (n, m) before centring, in whole units."""
    whole: Places = np.rint(units(X, power, exactly=True) * UNIT).astype(np.int64)
    return whole


def _summed(coder: Coder, codes: Places, targets: Places, rows: Places) -> Cells:
    """The cells of quantised rows (n, m)."""
    return _joined(Cells(coder, codes, targets, np.ones(len(rows), np.int64), Blocks.of(rows)))


def _joined(cells: Cells) -> Cells:
    """The same rows with cells of equal keys and targets added up."""
    order = cells.order
    hashes, targets = cells.hashes[order], cells.targets[order]
    first = np.ones(len(order), bool)
    first[1:] = (hashes[1:] != hashes[:-1]) | (targets[1:] != targets[:-1])
    starts = np.nonzero(first)[0]
    if len(starts) == len(order):
        return cells
    sums = np.add.reduceat(cells.sums[order], starts, axis=0)
    counts = np.add.reduceat(cells.counts[order], starts)
    return Cells(cells.coder, hashes[starts], targets[starts], counts, Blocks.of(sums))
