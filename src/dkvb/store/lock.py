"""One writer at a time: the system frees the lock of a process that dies."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dkvb._support.files import atomic

_HOLDER = re.compile(rb"dkvb (\d{1,10})\n")


class FolderLock:
    """A lock on a file, held from `acquire` until `release` or until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One object may be closed by another thread than the one that opened it.
        self._lock = FileLock(path, mode=atomic.PRIVATE, thread_local=False)

    def acquire(self, wait: float = 0.0) -> None:
        """Take the lock, waiting up to `wait` seconds; the error says which process has it."""
        atomic.refuse_link(self._path)
        try:
            self._lock.acquire(timeout=wait)
        except Timeout:
            holder = None
            with suppress(OSError):
                holder = _read_holder(self._path)
            who = "another process" if holder is None else f"process {holder}"
            waited = f" after {wait:g} seconds" if wait else ""
            raise BlockingIOError(
                f"{self._path.parent}: {who} is changing this model{waited}; wait until it is done"
            ) from None
        with suppress(OSError):  # the name of the holder is for messages only
            self._write_holder()

    def release(self) -> None:
        """Let others write."""
        self._lock.release()

    def _write_holder(self) -> None:
        handle = atomic.open_without_following(self._path, os.O_WRONLY)
        try:
            if os.fstat(handle).st_nlink == 1:  # another name may be another person's file
                os.ftruncate(handle, 0)
                os.write(handle, b"dkvb %d\n" % os.getpid())
        finally:
            os.close(handle)


def is_own_lock(path: Path) -> bool:
    """Whether a lock was written here: it names a process, or was just created and is empty."""
    atomic.refuse_link(path)
    return not path.stat().st_size or _read_holder(path) is not None


def _read_holder(path: Path) -> int | None:
    handle = atomic.open_without_following(path, os.O_RDONLY)
    try:
        found = _HOLDER.fullmatch(os.read(handle, 64))
    finally:
        os.close(handle)
    return int(found[1]) if found else None
