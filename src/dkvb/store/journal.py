"""The journal: one record per operation since the snapshot, appended and synced.

A record is its length (8 bytes), a CRC-32 of these (4 bytes), a safetensors file with checksums of
its own, and a CRC-32 of that file (4 bytes). The first record, which has no checksum at its end,
names the snapshot that the others continue. A record that a crash cut short was never acknowledged
and is left out. One that is there in full and fails its checksums is damaged, which is an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dkvb._support import files
from dkvb._support.files import Contents, FileError, State, atomic
from dkvb.store.framing import (
    damaged_at,
    framed,
    read_raw,
    records,
)

UNDO = "undo"
OPERATIONS = frozenset(("learn", "relabel", "rename", "merge_classes", UNDO))


class JournalWarning(UserWarning):
    """The end of a journal was left out."""


@dataclass(frozen=True)
class Record:
    """One operation, and the bytes of the file that hold it."""

    operation: str
    state: State
    start: int
    end: int


@dataclass(frozen=True)
class Journal:
    """What a journal file holds."""

    snapshot: str  # the digest of the snapshot that it continues
    records: list[Record]
    length: int  # bytes of whole records
    cut: int  # bytes after these, of a record that was never acknowledged

    def cut_warning(self, path: Path) -> str:
        """Return what to say about bytes that are left out."""
        return (
            f"{path}: the last {self.cut} bytes are the beginning of a record that was never "
            "acknowledged; they are left out"
        )


def read_journal(path: Path) -> Journal | None:
    """Return the journal at `path`; None where there is none, or an empty file."""
    raw = read_raw(path)
    if raw is None:
        return None
    found: list[Contents] = []
    ends = [0]
    for _, content, end in records(raw, path):
        try:
            found.append(files.decode(content, path))
        except FileError as error:
            raise damaged_at(path, ends[-1], str(error)) from error
        ends.append(end)
    if not found:
        if any(raw):  # a journal begins with a whole record, or is not there at all
            raise damaged_at(path, 0, "it does not begin with a whole record")
        return None
    kinds = [contents.kind for contents in found]
    if kinds[0] != "journal" or not OPERATIONS.issuperset(kinds[1:]):
        raise FileError("damaged", f"{path}: the journal is damaged: it holds {kinds[:3]}")
    snapshot = found[0].state.fact("snapshot", str)
    rest = [
        Record(one.kind, one.state, *place)
        for one, place in zip(found[1:], pairwise(ends[1:]), strict=True)
    ]
    return Journal(snapshot, rest, ends[-1], len(raw) - ends[-1])


def check_own_journal(path: Path) -> None:
    """Raise where there is a file that is no journal of a model, damaged or not."""
    raw = read_raw(path)
    if not raw:
        return
    try:
        kind = next(records(raw, path))[0].kind
    except (FileError, StopIteration):
        kind = None
    if kind != "journal":
        raise FileError(
            "foreign",
            f"{path}: expected the journal of a model; got another file; move it elsewhere",
        )


def append(
    path: Path, snapshot: str, operation: str, added: list[State], length: int | None, mode: int
) -> int:
    """Add records of one operation, wait until they are on disk, and return the new length.

    `length` is that of the whole records so far, None if the journal must begin anew for this
    snapshot. An error leaves the journal as it was, or with the whole record.
    """
    content = b"".join(framed(_encoded(operation, record)) for record in added)
    if length is None:
        first = State(facts={"snapshot": snapshot})
        content = framed(_encoded("journal", first), first=True) + content
        atomic.replace_file(path, [content], mode)
        return len(content)
    handle = atomic.open_without_following(path, os.O_RDWR)
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


def replace_record(path: Path, journal: Journal, old: Record, record: State, mode: int) -> None:
    """Take a record out, and add one that says that it was undone; both or neither."""
    raw = read_raw(path)
    assert raw is not None
    content = framed(_encoded(UNDO, record))
    kept = [raw[: old.start], raw[old.end : journal.length], content]
    atomic.replace_file(path, kept, mode)


def drop_cut(path: Path, journal: Journal, mode: int) -> None:
    """Remove the beginning of a record that was never acknowledged."""
    raw = read_raw(path) if journal.cut else None
    if raw is not None:
        atomic.replace_file(path, [raw[: journal.length]], mode)


def _encoded(kind: str, state: State) -> bytes:
    _, chunks = files.encode(kind, state)
    return b"".join(chunks)
