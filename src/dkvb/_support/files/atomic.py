"""A file is replaced as a whole or not at all, whatever happens and whenever."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from secrets import token_hex

Bytes = bytes | memoryview

UNFINISHED = ".unfinished"  # ends the name of a file that is being written


def replace_file(path: Path, chunks: Iterable[Bytes]) -> None:
    """Write chunks to a new file beside `path`, wait until it is on disk, put it in its place.

    A kill or a full disk at any moment leaves the old file or the new one. What a killed process
    was writing is left behind under a name that ends in ".unfinished" and can be deleted.
    """
    path = path.resolve()  # a link stays a link
    unfinished = path.with_name(f".{path.name}.{token_hex(4)}{UNFINISHED}")
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        try:
            for chunk in chunks:
                write_all(handle, chunk)
            sync(handle)
        finally:
            os.close(handle)
        rename(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


# The steps below are all that ever touches a disk: tests make each of them fail in turn.
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends
_MOST = 1 << 30  # bytes that one system call takes everywhere


def write_all(handle: int, chunk: Bytes) -> None:
    """Write every byte of the chunk; a disk that is full raises."""
    rest = memoryview(chunk).cast("B")
    while rest:
        rest = rest[os.write(handle, rest[:_MOST]) :]


def sync(handle: int) -> None:
    """Wait until what was written is on disk."""
    if sys.platform == "darwin":  # where fsync stops at the drive's own memory
        import fcntl

        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def rename(old: Path, new: Path) -> None:
    """Give a file the name, and so the place, of another."""
    old.replace(new)


def remove(path: Path) -> None:
    """Delete a file, and wait until that is on disk."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    if os.name == "nt":  # which cannot open folders, and writes names through
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
