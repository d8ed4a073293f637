"""Rows in blocks, so that a change copies the blocks that it touches and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
Places = NDArray[np.int64]

BLOCK = 2048  # rows
_CLAIMING = Lock()


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows (n, m) as a sequence of arrays that are never changed."""

    parts: tuple[Rows, ...]
    width: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, rows: Rows) -> Blocks:
        """From an array (n, m), without a copy."""
        parts = tuple(rows[i : i + BLOCK] for i in range(0, len(rows), BLOCK))
        return cls(parts, rows.shape[1], rows.dtype)

    @cached_property
    def _starts(self) -> Places:
        return np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, which: Places) -> Rows:
        """Some rows (k, m), by position."""
        found = np.empty((len(which), self.width), self.dtype)
        block = np.searchsorted(self._starts, which, side="right") - 1
        order = np.argsort(block, kind="stable")
        bounds = np.searchsorted(block[order], np.arange(len(self.parts) + 1))
        for number in np.unique(block).tolist():
            mine = order[bounds[number] : bounds[number + 1]]
            found[mine] = self.parts[number][which[mine] - self._starts[number]]
        return found

    def __iter__(self) -> Iterator[tuple[slice, Rows]]:
        """Each block with where it stands."""
        for number, part in enumerate(self.parts):
            yield slice(int(self._starts[number]), int(self._starts[number + 1])), part

    def joined(self) -> Rows:
        """All rows in one array (n, m)."""
        return np.concatenate(self.parts) if self.parts else np.empty((0, self.width), self.dtype)

    def appended(self, rows: Rows) -> Blocks:
        """With more rows (t, m) at the end."""
        parts, last = list(self.parts), len(self.parts[-1]) if self.parts else BLOCK
        if last < BLOCK:
            rows = np.concatenate([parts.pop(), rows])
        parts += [rows[i : i + BLOCK] for i in range(0, len(rows), BLOCK)]
        return Blocks(tuple(parts), self.width, self.dtype)

    def followed_by(self, other: Blocks) -> Blocks:
        """With all rows of other blocks at the end, of which many are not copied."""
        if len(other) < BLOCK:
            return self.appended(other.joined())
        return Blocks(self.parts + other.parts, self.width, self.dtype)

    def replaced(self, which: Places, rows: Rows) -> Blocks:
        """With other rows (k, m) at some positions (k,)."""
        parts = list(self.parts)
        block = np.searchsorted(self._starts, which, side="right") - 1
        for number in np.unique(block).tolist():
            mine, part = block == number, parts[number].copy()
            part[which[mine] - self._starts[number]] = rows[mine]
            parts[number] = part
        return Blocks(tuple(parts), self.width, self.dtype)

    def kept(self, mask: NDArray[np.bool_]) -> Blocks:
        """Only the rows where a mask (n,) is true."""
        parts = []
        for place, part in self:
            mine = mask[place]
            if mine.all():
                parts.append(part)
            elif mine.any():
                parts.append(part[mine])
        return Blocks(tuple(parts), self.width, self.dtype)


class Growing:
    """Rows (n, m) with room for more: further rows cost what they take, not a copy of all.

    A value is never changed. The first successor writes into the room behind its rows; another one
    makes a copy.
    """

    def __init__(self, rows: Rows) -> None:
        self._buffer, self._used, self._n = rows, [len(rows)], len(rows)

    def __len__(self) -> int:
        return self._n

    def __getstate__(self) -> dict[str, Any]:
        # The room may hold rows that a successor has learned.
        return {"_buffer": self.array.copy(), "_used": [self._n], "_n": self._n}

    @property
    def array(self) -> Rows:
        """The rows (n, m)."""
        return self._buffer[: self._n]

    def appended(self, rows: Rows) -> Growing:
        """With more rows (t, m) at the end."""
        end, grown = self._n + len(rows), Growing(self._buffer)
        with _CLAIMING:  # another thread may grow another successor
            free = self._used[0] == self._n and end <= len(self._buffer)
            if free:
                self._used[0] = end
        grown._n, grown._used = end, self._used
        if not free:
            room = (end + max(64, end // 8), *self._buffer.shape[1:])
            grown._buffer, grown._used = np.empty(room, self._buffer.dtype), [end]
            grown._buffer[: self._n] = self.array
        grown._buffer[self._n : end] = rows
        return grown
