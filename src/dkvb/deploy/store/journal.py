"""The journal: one record per operation since the snapshot, appended and synced.

A record is its length (8 bytes), a CRC-32 of these (4 bytes), a safetensors file with checksums of
its own, and a CRC-32 of that file (4 bytes). The first record, which has no checksum at its end,
names the snapshot that the others continue. A record that a crash cut short was never acknowledged
and is left out. One that is there in full and fails its checksums is damaged, which is an error.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dkvb._support import files
from dkvb._support.files import Contents, FileError, State, atomic

FRAMING = 2  # format 2 of the files had framing 1: no checksum after a record
_FRAME = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


class JournalWarning(UserWarning):
    """The end of a journal was left out."""


@dataclass(frozen=True)
class Journal:
    """What a journal file holds."""

    snapshot: str  # the digest of the snapshot that it continues
    records: list[State]
    length: int  # bytes of whole records
    cut: int  # bytes after these, of a record that was never acknowledged
    framing: int

    def cut_warning(self, path: Path) -> str:
        """Return what to say about bytes that are left out."""
        return (
            f"{path}: the last {self.cut} bytes are the beginning of a record that was never "
            "acknowledged; they are left out"
        )


def read_journal(path: Path) -> Journal | None:
    """Return the journal at `path`; None where there is none, or an empty file."""
    raw = _content(path)
    if raw is None:
        return None
    found: list[Contents] = []
    length = 0
    for contents, end in _records(raw, path):
        found.append(contents)
        length = end
    if not found:
        if any(raw):  # a journal begins with a whole record, or is not there at all
            raise _damaged(path, 0, "it does not begin with a whole record")
        return None
    kinds = [contents.kind for contents in found]
    if kinds != ["journal", *["learn"] * (len(kinds) - 1)]:
        raise FileError("damaged", f"{path}: the journal is damaged: it holds {kinds[:3]}")
    first, *rest = (contents.state for contents in found)
    return Journal(first.fact("snapshot", str), rest, length, len(raw) - length, _framing_of(first))


def check_own_journal(path: Path) -> None:
    """Raise where there is a file that is no journal of a model, damaged or not."""
    raw = _content(path)
    if not raw:
        return
    try:
        kind = next(_records(raw, path))[0].kind
    except (FileError, StopIteration):
        kind = None
    if kind != "journal":
        raise FileError(
            "foreign",
            f"{path}: expected the journal of a model; got another file; move it elsewhere",
        )


def append(path: Path, snapshot: str, record: State, length: int | None, mode: int) -> int:
    """Add a record, wait until it is on disk, and return the new length.

    `length` is that of the whole records so far, None if the journal must begin anew for this
    snapshot. An error leaves the journal as it was, or with the whole record.
    """
    content = _framed("learn", record)
    if length is None:
        first = State(facts={"snapshot": snapshot, "framing": FRAMING})
        content = _framed("journal", first)[: -_CHECKSUM.size] + content
        atomic.replace_file(path, [content], mode)
        return len(content)
    handle = atomic.open_regular(path, os.O_RDWR)
    try:
        if os.fstat(handle).st_nlink > 1:  # a copy by hard links must not change with this one
            before = os.pread(handle, length, 0)
            atomic.replace_file(path, [before, content], mode)
            return length + len(content)
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


def drop_cut(path: Path, journal: Journal) -> None:
    """Remove the beginning of a record that was never acknowledged."""
    if journal.cut:
        handle = atomic.open_regular(path, os.O_WRONLY)
        try:
            os.ftruncate(handle, journal.length)
            atomic.sync(handle)
        finally:
            os.close(handle)


def _content(path: Path) -> bytes | None:
    try:
        handle = atomic.open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read()


def _framed(kind: str, state: State) -> bytes:
    _, chunks = files.encode(kind, state)
    content = b"".join(chunks)
    size = struct.pack("<Q", len(content))
    return size + _CHECKSUM.pack(zlib.crc32(size)) + content + _CHECKSUM.pack(zlib.crc32(content))


def _framing_of(first: State) -> int:
    return first.whole_number("framing", 1, FRAMING + 1) if "framing" in first.facts else 1


def _records(raw: bytes, path: Path) -> Iterator[tuple[Contents, int]]:
    """Whole records, each with where it ends."""
    start, after = 0, 0
    while len(raw) - start >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(raw, start)
        body, end = start + _FRAME.size, start + _FRAME.size + length
        if zlib.crc32(raw[start : start + 8]) != checksum:
            if not any(raw[start:]):  # a file that grew before its content came
                return
            raise _damaged(path, start, "its length was changed")
        if end + after > len(raw):
            return
        content = raw[body:end]
        if after and _CHECKSUM.unpack_from(raw, end)[0] != zlib.crc32(content):
            if not any(raw[end:]):  # the same: the system wrote the end of the file last
                return
            raise _damaged(path, start, "a record that was acknowledged was changed")
        try:
            contents = files.decode(np.frombuffer(bytearray(content), np.uint8), path)
        except FileError as error:
            raise _damaged(path, start, str(error)) from error
        if start == 0:
            after = _CHECKSUM.size if _framing_of(contents.state) == FRAMING else 0
            start = end
        else:
            start = end + after
        yield contents, start


def _damaged(path: Path, start: int, why: str) -> FileError:
    return FileError(
        "damaged",
        f"{path}: the journal is damaged at byte {start}: {why}; put a copy in its place, or "
        "remove it to go back to the snapshot, which lacks all that was learned since",
    )
