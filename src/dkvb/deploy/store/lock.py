"""One writer at a time: the system frees the lock of a process that dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class FolderLock:
    """Held from `acquire` until `release`, or until the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise at once and say who has it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle)
        except OSError as error:
            with self._path.open("rb") as file:
                file.seek(_FIRST)
                holder = file.read(20).decode(errors="replace").strip()
            os.close(handle)
            who = f"process {holder}" if holder else "another process"
            raise BlockingIOError(
                f"{self._path.parent}: {who} is changing this model; wait until it is done"
            ) from error
        os.ftruncate(handle, 0)
        os.write(handle, b" " * _FIRST + str(os.getpid()).encode())
        self._handle = handle

    def release(self) -> None:
        """Let others write."""
        if self._handle is not None:
            os.close(self._handle)  # which unlocks
            self._handle = None


_FIRST = 1  # where the holder's number stands: Windows guards the byte before against reading


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, _FIRST)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
