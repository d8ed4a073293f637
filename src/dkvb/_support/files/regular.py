"""Reading files that others name: regular ones, of a size that was agreed on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rich.filesize import decimal


def check_regular(path: Path, limit: int) -> int:
    """The size of a regular file of at most `limit` bytes; others raise OSError.

    Reading a device such as /dev/zero, or a pipe, would never end.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is not a regular file")
    if found.st_size > limit:
        raise OSError(f"{path} has {decimal(found.st_size)}, more than {decimal(limit)}")
    return found.st_size


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; others raise OSError."""
    size = check_regular(path, limit)
    # Between the check and here the name may have come to mean a pipe: opening must not wait.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        content = file.read(size + 1)  # as much as is asked for is allocated
    if len(content) > size:
        raise OSError(f"{path} grew while it was read")
    return content
