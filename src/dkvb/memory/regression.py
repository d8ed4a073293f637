"""All that a kernel regressor has learned, as one value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.outputs import Numbers, centred
from dkvb.memory.quality import left_out_entries
from dkvb.memory.tabled import Tabled

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scale:
    """Numbers as they are solved for: centred, and in units of their spread."""

    origin: F64  # (T,)
    unit: F64  # (T,)

    @classmethod
    def of(cls, rows: F64) -> Scale:
        """Of the rows (n, T) of all examples, in canonical order."""
        spread = rows.std(axis=0)
        return cls(rows.mean(axis=0), np.where(spread > 0, spread, 1.0))

    def __call__(self, rows: F64) -> F64:
        scaled: F64 = (rows - self.origin) / self.unit
        return scaled


@dataclass(frozen=True, eq=False)
class RegressionState(Tabled):
    """Examples with rows of numbers, and the solution for them."""

    scale: Scale | None = None  # of what was last solved for from scratch
    flat: bool = True  # whether a number was given for each example, not a row of them

    # ---------------------------------------------------------------------------------- learning
    def learned(self, X: F32, y: F64) -> Self:
        """With examples X (n, m) of numbers y (n,) or (n, T)."""
        rows = self._rows_of(y)
        fresh = replace(self, table=rows[:0], flat=y.ndim == 1)
        return (self if self.n_rows else fresh).learned_rows(X, rows)

    def forget_samples(self, X: F32, y: F64) -> Self:
        """Without examples X (n, m) that were learned with numbers y."""
        return self.forgotten_rows(X, self._rows_of(y))

    def merge(self, other: Self) -> Self:
        self.check_mergeable(other)
        if self.n_rows and other.n_rows and self._columns != other._columns:
            raise ValueError(
                f"other: expected {self._columns} for each example; got {other._columns}; "
                "merge models of the same targets"
            )
        return self.joined(other) if self.n_rows else other.joined(self)

    @property
    def _columns(self) -> str:
        return "one number" if self.flat else f"rows of {self.table.shape[1]} numbers"

    def _rows_of(self, y: F64) -> F64:
        """Numbers as rows (n, T), as many as there were before."""
        rows = y[:, None] if y.ndim == 1 else y
        if self.n_rows and (y.ndim == 1, rows.shape[1]) != (self.flat, self.table.shape[1]):
            raise ValueError(
                f"y: expected {self._columns} for each example, as before; got shape {y.shape}; "
                "learn other targets in another model"
            )
        return rows

    # ---------------------------------------------------------------------------------- solution
    def prepared(self) -> Self:
        """With a scale for the examples as they are: a function of the set of them."""
        rows = self.table[self.memory.targets[self.memory.order]]
        return replace(super().prepared(), scale=Scale.of(rows))

    def solved_as(self, rows: F64) -> Numbers:
        assert self.scale is not None
        return Numbers(self.scale(rows))

    # -------------------------------------------------------------------------------- predicting
    @cached_property
    def mean(self) -> F64:
        """Of the numbers of all examples (T,)."""
        counts = np.bincount(self.memory.targets, minlength=len(self.table))
        mean: F64 = counts @ self.table / max(1, self.n_rows)
        return mean

    def predict(self, x: F32) -> F64:
        """Numbers (n, T) for embeddings x (n, m)."""
        assert self.solution is not None
        return self._in_full(self.solution.predict(x), self.mean)

    def _in_full(self, predicted: F64, mean: F64) -> F64:
        """Predictions (n, T + 1) as numbers (n, T) that are centred by a mean (T,), or means
        (n, T)."""
        assert self.scale is not None
        return self.scale.origin + self.scale.unit * centred(predicted, self.scale(mean))

    @cached_property
    def left_out(self) -> tuple[F64, F64]:
        """The numbers (k, T) of examples that were left out, and what the others predict."""
        assert self.solution is not None
        which, predicted = left_out_entries(self.solution, self.entries, self.outputs)
        own = self.table[self.memory.targets[which]]
        others = max(1, self.n_rows - 1)
        mean = self.mean + (self.mean - own) / others  # of the others
        return own, self._in_full(predicted, mean)
