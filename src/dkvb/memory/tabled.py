"""What was learned with targets that are rows of numbers: a target is a place in a table of these.

The table is sorted and holds each row once, so that equal sets of examples have equal bits. Of more
examples than can be solved for, those that lie together are one cell, with the mean of their rows.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.cells import Cells
from dkvb.memory.choose import Choice, HeldOut, choose_for_cells
from dkvb.memory.compress import fit_groups
from dkvb.memory.conditioning import Conditioning
from dkvb.memory.examples import Examples
from dkvb.memory.outputs import Outputs
from dkvb.memory.points import Memory, points_of
from dkvb.memory.solve import (
    CHOICE_CELLS,
    CHOICE_ROWS,
    HELD_OUT_ROWS,
    MOST_POINTS,
    axes_of,
    distinct,
)
from dkvb.memory.state import Learned

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]
Rows = NDArray[Any]


def _no_rows() -> Rows:
    return np.zeros((0, 1))


@dataclass(frozen=True, eq=False)
class Tabled(Learned):
    """Examples, or sums, and the table (S, T) that their targets index."""

    table: Rows = field(default_factory=_no_rows)
    cells: Places | None = None  # (E,) the cell of each entry, −1 of one that came since
    n_cells: int = 0

    @abstractmethod
    def solved_as(self, rows: F64) -> Outputs:
        """What is solved for where targets are rows (N, T) like those of the table."""

    @property
    def rows_of_table(self) -> F64:
        """The table as numbers (S, T), NaN where nobody said one."""
        return self.table.astype(np.float64)

    # ---------------------------------------------------------------------------------- changing
    def learned_rows(self, X: F32, values: Rows, ids: Any = None) -> Self:
        """With examples X (n, m) of targets (n, T)."""
        table, places = distinct_rows(np.concatenate([self.table, values]))
        state = self.with_table(table, places[: len(self.table)])
        targets = places[len(self.table) :]
        if isinstance(self.memory, Cells):
            return state._plus(Cells.of(self.memory.coder, X, targets))
        return state._plus(Examples.of(X, targets, ids))

    def joined(self, other: Self) -> Self:
        """With all examples of another state that can be merged, whose table has these columns."""
        table, places = distinct_rows(np.concatenate([self.table, other.table]))
        mine, theirs = places[: len(self.table)], places[len(self.table) :]
        more = other.memory.with_targets(theirs[other.memory.targets])
        state = self.with_table(table, mine)._plus(more)
        return replace(state, audit=(*self.audit, *other.audit))

    def forgotten_rows(self, X: F32, values: Rows) -> Self:
        """Without examples X (n, m) that were learned with targets (n, T)."""
        targets = self._places_in_table(values)
        if isinstance(self.memory, Cells):
            less = self._minus(Cells.of(self.memory.coder, X, targets), "X, y")
            return less._recorded("forget_samples", len(X)).without_unused()
        return self.forgotten(self._positions(X, targets, "X, y"))

    def forgotten(self, places: Places) -> Self:
        """Without the examples at some positions."""
        mask = np.ones(len(self.memory), bool)
        mask[places] = False
        return self._only(mask, "forget_samples", len(places)).without_unused()

    def without_unused(self) -> Self:
        """Without rows of the table that no example has."""
        used = np.zeros(len(self.table), bool)
        used[self.memory.targets] = True
        if used.all():
            return self
        return self.with_table(self.table[used], np.maximum(np.cumsum(used) - 1, 0))

    def with_table(self, table: Rows, place: Places) -> Self:
        """With another table, in which row i is row place[i]."""
        moved = replace(self, table=table)
        if len(place) == len(table) and (place == np.arange(len(place))).all():
            return moved
        solution = self.solution
        if solution is not None:  # where a cell follows behind the table
            cells = len(table) + np.arange(self.n_cells)
            solution = solution.with_targets(np.concatenate([place, cells]))
        memory = self.memory.with_targets(place[self.memory.targets])
        return replace(moved, memory=memory, solution=solution)

    def _plus(self, more: Examples | Cells) -> Self:
        state = super()._plus(more)
        if self.cells is None:
            return state
        new = np.full(len(state.memory) - len(self.cells), -1)
        return replace(state, cells=np.concatenate([self.cells, new]))

    def _kept(self, mask: NDArray[np.bool_]) -> Self:
        state = super()._kept(mask)
        return state if self.cells is None else replace(state, cells=self.cells[mask])

    def canonical(self) -> Self:
        """The same with the memory in canonical order."""
        order, solution = self.memory.order, self.solution
        if solution is not None:
            solution = solution.compacted().reordered(order)
        cells = None if self.cells is None else self.cells[order]
        return replace(self, memory=self.memory.canonical(), solution=solution, cells=cells)

    def _places_in_table(self, values: Rows) -> Places:
        """The place (n,) of rows (n, T) in the table; one behind its end where there is none."""
        table, places = distinct_rows(np.concatenate([self.table, values]))
        known = np.full(len(table), len(self.table))
        known[places[: len(self.table)]] = np.arange(len(self.table))
        found: Places = known[places[len(self.table) :]]
        return found

    # ---------------------------------------------------------------------------------- solution
    @property
    def needs_cells(self) -> bool:
        """Whether there are too many examples to solve for them one by one."""
        return bool(distinct(self.memory, self.memory.order)[-1] >= MOST_POINTS)

    def prepared(self) -> Self:
        if not self.needs_cells:
            return replace(self, cells=None, n_cells=0)
        order, cells = self.memory.order, np.empty(len(self.memory), np.int64)
        cells[order] = self._fitted_cells(order, axes_of(self.conditionings()), MOST_POINTS)
        return replace(self, cells=cells, n_cells=int(cells.max()) + 1)

    @property
    def entries(self) -> Memory:
        """The memory, in which the target of an entry in a cell is the cell, behind the table."""
        return self._entries

    @cached_property
    def _entries(self) -> Memory:
        if self.cells is None:
            return self.memory
        own = self.memory.targets
        return self.memory.with_targets(
            np.where(self.cells >= 0, len(self.table) + self.cells, own)
        )

    @property
    def outputs(self) -> Outputs:
        """The rows of the table, and those of cells."""
        return self._outputs

    @cached_property
    def _outputs(self) -> Outputs:
        rows = self.rows_of_table
        if self.cells is None:
            return self.solved_as(rows)
        order = self.memory.order[self.cells[self.memory.order] >= 0]
        means = self._means(order, self.cells[order], self.n_cells)
        return self.solved_as(np.concatenate([rows, means]))

    def chosen(self, found: dict[str, Conditioning]) -> tuple[Choice, Conditioning]:
        if self.cells is None:
            return super().chosen(found)
        few = self.memory.order[:CHOICE_ROWS]
        out, rest = few[:HELD_OUT_ROWS], few[HELD_OUT_ROWS:]
        group = self._fitted_cells(rest, axes_of(found), CHOICE_CELLS)
        means = self._means(rest, group, int(group.max()) + 1)
        targets = self.memory.targets.copy()
        targets[rest] = len(self.table) + group
        memory = self.memory.with_targets(targets)

        def under(by: Conditioning) -> HeldOut:
            cells = points_of(memory, rest, group, by)
            return HeldOut(cells, points_of(memory, out, np.arange(len(out)), by))

        outputs = self.solved_as(np.concatenate([self.rows_of_table, means]))
        choice = choose_for_cells(under, found, outputs)
        return choice, found[choice.setting.conditioning]

    def _fitted_cells(self, which: Places, by: Conditioning, most: int) -> Places:
        """The cell (k,) of some entries, whatever their targets."""
        alike = self.memory.with_targets(np.zeros(len(self.memory), np.int64))
        return fit_groups(alike, which, by, most)

    def _means(self, which: Places, group: Places, n: int) -> F64:
        """The mean rows (n, T) of groups (k,) of some entries."""
        weights = self.memory.counts[which].astype(np.float64)
        total = np.maximum(np.bincount(group, weights, minlength=n), 1)
        columns = self.rows_of_table[self.memory.targets[which]].T
        sums = [np.bincount(group, weights * own, minlength=n) for own in columns]
        means: F64 = np.stack(sums, axis=1) / total[:, None]
        return means


def distinct_rows(rows: Rows) -> tuple[Rows, Places]:
    """Each row of (n, T) once, sorted, and the place (n,) of each among these.

    >>> distinct_rows(np.array([[2, 1], [1, 5], [2, 1]]))[1].tolist()
    [1, 0, 1]
    """
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    ordered = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.empty(len(rows), np.int64)
    places[order] = np.cumsum(new) - 1
    return ordered[new], places
