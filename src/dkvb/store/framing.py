"""How records lie in a journal: their length, its checksum, the record, and the record's checksum.

This module needs no torch, so that a history is read at once.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from dkvb._support.files import FileError, atomic
from dkvb._support.files.metadata import Metadata, read_metadata

_FRAME = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def framed(content: bytes, *, first: bool = False) -> bytes:
    """Return a record as it lies in a journal; the first one has no checksum at its end."""
    size = struct.pack("<Q", len(content))
    end = b"" if first else _CHECKSUM.pack(zlib.crc32(content))
    return size + _CHECKSUM.pack(zlib.crc32(size)) + content + end


def records(raw: bytes, path: Path) -> Iterator[tuple[Metadata, bytes, int]]:
    """Yield whole records, each with what its header says and where it ends."""
    start, after = 0, 0
    while len(raw) - start >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(raw, start)
        body, end = start + _FRAME.size, start + _FRAME.size + length
        if zlib.crc32(raw[start : start + 8]) != checksum:
            if not any(raw[start:]):  # a file that grew before its content came
                return
            raise damaged_at(path, start, "its length was changed")
        if end + after > len(raw):
            return
        content = raw[body:end]
        if after and _CHECKSUM.unpack_from(raw, end)[0] != zlib.crc32(content):
            if not any(raw[end:]):  # the same: the system wrote the end of the file last
                return
            raise damaged_at(path, start, "a record that was acknowledged was changed")
        try:
            metadata = read_metadata(io.BytesIO(content), len(content), str(path))
        except FileError as error:
            raise damaged_at(path, start, str(error)) from error
        if start == 0:
            after, start = _CHECKSUM.size, end
        else:
            start = end + after
        yield metadata, content, start


def read_raw(path: Path) -> bytes | None:
    """Return the bytes of a journal; None where there is none."""
    try:
        handle = atomic.open_without_following(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read()


def damaged_at(path: Path, start: int, why: str) -> FileError:
    """Return the error for a journal that was changed after it was written."""
    return FileError(
        "damaged",
        f"{path}: the journal is damaged at byte {start}: {why}; put a copy in its place, or "
        "remove it to go back to the snapshot, which lacks all that was learned since",
    )
