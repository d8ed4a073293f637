"""A file to write to, whose bytes are taken away piece by piece."""

from __future__ import annotations

import io
from typing import Any


class Sink(io.RawIOBase):
    """A file that cannot be sought: what was written is taken away in turn."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._length

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._length += len(self._pieces[-1])
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        """Return what was written since this was last called."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
