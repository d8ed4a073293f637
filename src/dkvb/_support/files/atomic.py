"""Replace files as a whole or not at all, whatever happens and whenever."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from dkvb._support.files.errors import FileError

Bytes = bytes | memoryview

UNFINISHED = ".unfinished"  # ends the name of a file that is being written
PRIVATE = 0o600  # the mode of new models: their owner alone reads and writes them


def replace_file(path: Path, chunks: Iterable[Bytes], mode: int | None = None) -> None:
    """Write chunks to a new file beside `path`, wait until it is on disk, and rename it.

    A kill or a full disk at any moment leaves the old file or the new one. What a killed process
    was writing is left behind under a name that ends in ".unfinished" and can be deleted. The
    mode of a file that is replaced is kept; a new file gets `mode`, or what the umask allows.
    """
    path = path.resolve()  # a link stays a link
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
    unfinished = unfinished_path(path)
    # Until its mode is set, nobody else may open what is being written.
    opened = 0o666 if mode is None else PRIVATE & mode | stat.S_IWUSR
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, opened)
        try:
            if mode is not None:
                set_mode(handle, mode)
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


def unfinished_path(path: Path) -> Path:
    """Return a new name beside `path`, with 8 random hexadecimal digits, for what is unfinished."""
    return path.with_name(f".{path.name}.{token_hex(4)}{UNFINISHED}")


def refuse_link(path: Path) -> None:
    """Raise where `path` is there and no regular file; a link is none, wherever it leads."""
    with suppress(FileNotFoundError):
        _check_regular(path, path.lstat())


def open_without_following(path: Path, flags: int) -> int:
    """Open a regular file and return its handle; links are not followed, pipes do not block."""
    refuse_link(path)
    extra = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _BINARY
    handle = os.open(path, flags | extra)
    try:
        _check_regular(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a folder or a device"
        raise FileError(
            "foreign",
            f"{path}: expected a regular file; got {kind}, which is never followed or changed; "
            "put a copy of the file in its place, or remove it",
        )


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


def set_mode(handle: int, mode: int) -> None:
    """Set the mode of an open file, where the file system has modes."""
    if os.name != "nt":
        with suppress(PermissionError):
            os.fchmod(handle, mode)


def rename(old: Path, new: Path) -> None:
    """Rename a file, in the place of another of the new name."""
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
