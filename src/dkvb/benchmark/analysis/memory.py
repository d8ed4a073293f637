"""How much memory what was learned takes."""

from __future__ import annotations

import pickle
from typing import Any


class _Counter:
    """A file that only counts what is written to it."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size


def pickled_bytes(thing: Any) -> int:
    """Bytes that a pickle of `thing` takes: what must be kept of it, without what can be found
    again.

    >>> 1000 <= pickled_bytes(bytes(1000)) < 1100
    True
    """
    file = _Counter()
    pickle.Pickler(file, protocol=5).dump(thing)
    return file.bytes
