"""The journal: what was learned since the snapshot, a record an operation, appended and synced.

A record is its length (8 bytes), a CRC-32 of these (4 bytes), and a safetensors file with checksums
of its own. The first record names the snapshot that the others continue. A record that a crash cut
off was never acknowledged and is left out; one that is damaged further in is an error.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dkvb._support import files
from dkvb._support.files import Contents, FileError, State, atomic

_FRAME = struct.Struct("<QI")


class JournalWarning(UserWarning):
    """The end of a journal was left out."""


@dataclass(frozen=True)
class Journal:
    """What a journal file holds: the snapshot it continues, records, and how many bytes count."""

    snapshot: str
    records: list[State]
    length: int


def read_journal(path: Path) -> Journal | None:
    """The journal at `path`, or None where there is none, or only the beginning of one."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    found: list[Contents] = []
    length = 0
    for contents, end in _records(raw, path):
        found.append(contents)
        length = end
    if length < len(raw):
        warnings.warn(
            f"{path}: the last {len(raw) - length} bytes are the beginning of a record that was "
            "never acknowledged; they are left out",
            JournalWarning,
            stacklevel=2,
        )
    if not found:
        return None
    kinds = [contents.kind for contents in found]
    if kinds != ["journal", *["learn"] * (len(kinds) - 1)]:
        raise FileError("damaged", f"{path}: the journal is damaged: it holds {kinds[:3]}")
    first, *rest = (contents.state for contents in found)
    return Journal(first.fact("snapshot", str), rest, length)


def append(path: Path, snapshot: str, record: State, length: int | None) -> int:
    """Add a record and wait until it is on disk; returns the new length.

    `length` is what counts of the file so far, None if it must begin anew for this snapshot. An
    error leaves the journal as it was.
    """
    if length is None:
        first = State(facts={"snapshot": snapshot})
        content = _framed("journal", first) + _framed("learn", record)
        atomic.replace_file(path, [content])
        return len(content)
    content = _framed("learn", record)
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    try:
        os.ftruncate(handle, length)  # what a crash cut off
        os.lseek(handle, length, os.SEEK_SET)
        try:
            atomic.write_all(handle, content)
            atomic.sync(handle)
        except BaseException:
            os.ftruncate(handle, length)
            raise
    finally:
        os.close(handle)
    return length + len(content)


def _framed(kind: str, state: State) -> bytes:
    _, chunks = files.encode(kind, state)
    content = b"".join(chunks)
    size = struct.pack("<Q", len(content))
    return size + struct.pack("<I", zlib.crc32(size)) + content


def _records(raw: bytes, path: Path) -> Iterator[tuple[Contents, int]]:
    """Whole records, each with where it ends."""
    start = 0
    while len(raw) - start >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(raw, start)
        body = start + _FRAME.size
        if zlib.crc32(raw[start : start + 8]) != checksum:
            if not any(raw[start:]):  # a file that grew before its content came
                return
            raise _damaged(path, start, "its length was changed")
        if body + length > len(raw):
            return
        content = np.frombuffer(bytearray(raw[body : body + length]), np.uint8)
        try:
            contents = files.decode(content, path)
        except FileError as error:
            if body + length == len(raw):  # the end of a file may come before its middle
                return
            raise _damaged(path, start, str(error)) from error
        start = body + length
        yield contents, start


def _damaged(path: Path, start: int, why: str) -> FileError:
    return FileError("damaged", f"{path}: the journal is damaged at byte {start}: {why}")
