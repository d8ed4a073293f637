"""What data is, by content: a hash of every item, remembered for files that did not change."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from dkvb.embedding.datasets.dataset import Dataset

UNREADABLE = hashlib.sha256(b"unreadable").digest()  # stands for an item that cannot be read

_STILL_FRESH = 2.0  # seconds; a file younger than this could change again within one clock tick

Stamp = tuple[str, int, int]  # path, bytes, time of change


def digest(content: bytes) -> bytes:
    """What tells one content from another: 32 bytes."""
    return hashlib.sha256(content).digest()


def data_digest(digests: list[bytes]) -> str:
    """One hash for all items in their order."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def item_digests(dataset: Dataset, memory: Path, executor: Executor) -> list[bytes]:
    """The digest of every item, in order.

    Where items are files of their own, `memory` keeps their digests under path, size and time of
    change, so that a large data set is read once to be known and once to be embedded.
    """

    def read(i: int) -> bytes:
        try:
            return digest(dataset.read(i))
        except OSError:
            return UNREADABLE

    items = range(len(dataset))
    if dataset.path is None:
        return list(executor.map(read, items))
    stamps = [_stamp(dataset.path(i)) for i in items]
    with _open(memory) as base:
        known = [_recall(base, stamp) for stamp in stamps]
        unknown = [i for i in items if known[i] is None]
        new = dict(zip(unknown, executor.map(read, unknown), strict=True))
        settled = (time.time() - _STILL_FRESH) * 1e9
        with base:
            base.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)",
                [
                    (*stamp, new[i])
                    for i in unknown
                    if (stamp := stamps[i]) and stamp[2] < settled and new[i] != UNREADABLE
                ],
            )
    return [old or new[i] for i, old in enumerate(known)]


@contextmanager
def _open(memory: Path) -> Iterator[sqlite3.Connection]:
    """The table of known files, which several processes may use at once."""
    memory.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(memory, timeout=60)) as base:
            with base:
                base.execute(
                    "CREATE TABLE IF NOT EXISTS files "
                    "(path TEXT PRIMARY KEY, size INT, changed INT, digest BLOB)"
                )
            yield base
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"cache: expected to remember hashes of files in {memory}; it cannot be used "
            f"({error}); delete that file, nothing else is lost"
        ) from error


def is_file_memory(path: Path) -> bool:
    """Whether a file is a table of hashes that `item_digests` made."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as base:
            columns = [row[1] for row in base.execute("PRAGMA table_info(files)")]
    except sqlite3.Error:
        return False
    return columns == ["path", "size", "changed", "digest"]


def _recall(base: sqlite3.Connection, stamp: Stamp | None) -> bytes | None:
    query = "SELECT digest FROM files WHERE path = ? AND size = ? AND changed = ?"
    row = base.execute(query, stamp).fetchone() if stamp else None
    found = row[0] if row else None
    return found if isinstance(found, bytes) and len(found) == len(UNREADABLE) else None


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return str(path.resolve()), status.st_size, status.st_mtime_ns
