"""Memory that a fitted classifier takes."""

from __future__ import annotations

import pickle
from typing import Any


class _ByteCounter:
    """A file that only counts the bytes written to it."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size


def pickled_size(estimator: Any) -> int:
    """Return the number of bytes of a pickle, which leaves out caches that can be recomputed.

    >>> 1000 <= pickled_size(bytes(1000)) < 1100
    True
    """
    file = _ByteCounter()
    pickle.Pickler(file, protocol=5).dump(estimator)
    return file.bytes
