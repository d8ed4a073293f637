"""One entry of the cache: a folder of shards, each a whole npy file and a note with its checksum.

    entry.json              what was embedded, by what, and how it is cut into shards
    00003-<sha256>.npy      rows of shard 3; its own checksum is its name
    00003.json              written last: which file is shard 3, which items are not in it; and
                            a line with its own checksum

Every file is written under another name and renamed, so that it is there in full or not at all.
A shard counts only if its note belongs to this entry and its file is what the note says.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from dkvb._support.files import replace_file

Array = NDArray[Any]

FORMAT = 1
DTYPES = ("float32", "float16")
ABOUT = "entry.json"


class Skipped(NamedTuple):
    """An item that has no row: its position in the data, its name, and why."""

    item: int
    name: str
    reason: str


class Shard(NamedTuple):
    """A shard in memory: its embeddings, and the items that have none."""

    rows: Array  # (items − skipped, m)
    skipped: list[Skipped]


@dataclass(frozen=True)
class Entry:
    """A folder of the cache; `about` is what its entry.json says."""

    folder: Path
    about: dict[str, Any]

    @property
    def address(self) -> str:
        """The hash of what was asked for, which is the folder's name."""
        return self.folder.name

    @property
    def identity(self) -> dict[str, Any]:
        """What was asked for."""
        identity: dict[str, Any] = self.about["identity"]
        return identity

    @property
    def n_items(self) -> int:
        """How many items the data has."""
        return int(self.identity["data"]["items"])

    @property
    def n_shards(self) -> int:
        """How many shards they are cut into."""
        return -(-self.n_items // int(self.about["shard_rows"]))

    def span(self, shard: int) -> range:
        """The items of one shard."""
        rows = int(self.about["shard_rows"])
        return range(shard * rows, min((shard + 1) * rows, self.n_items))

    def problem(self, shard: int, *, thorough: bool = True) -> str | None:
        """Why a shard cannot be used: "missing", or what is wrong; None if all is well.

        Without `thorough` the file's length is checked, but not its checksum.
        """
        note = self._note(shard)
        if note is None:
            return "missing"
        try:
            if thorough:
                with self._file(shard, note["sha256"]).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != note["sha256"]:
                        return f"shard {shard}: its checksum is wrong"
            self._open(shard, note, mapped=True)  # its header and its length
        except Exception as error:  # a damaged file makes its reader raise anything
            return f"shard {shard}: {error}"
        return None

    def shard(self, shard: int) -> Shard:
        """A shard that has no problem."""
        note = self._note(shard)
        if note is None:
            raise ValueError(f"cache: expected shard {shard} of {self.address}; it is missing")
        return self._open(shard, note)

    def _file(self, shard: int, checksum: str) -> Path:
        return self.folder / f"{shard:05}-{checksum}.npy"

    def _note(self, shard: int) -> dict[str, Any] | None:
        try:
            content, _, checksum = (self.folder / f"{shard:05}.json").read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest().encode() != checksum:
            return None
        note = parsed(content)
        valid = (
            isinstance(note, dict)
            and (note.get("entry"), note.get("shard")) == (self.address, shard)
            and re.fullmatch("[0-9a-f]{64}", str(note.get("sha256")))
            and isinstance(note.get("skipped"), list)
            and all(map(_is_skipped, note["skipped"]))
        )
        return note if valid else None

    def _open(self, shard: int, note: dict[str, Any], *, mapped: bool = False) -> Shard:
        path = self._file(shard, note["sha256"])
        # Mapped first, since a header may promise more than there is: that raises here.
        rows: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        skipped = [Skipped(*item) for item in note["skipped"]]
        shape = (len(self.span(shard)) - len(skipped), self.about["dimension"])
        if rows.shape != shape or str(rows.dtype) != self.identity["dtype"]:
            raise ValueError(
                f"expected {shape} {self.identity['dtype']}, not {rows.shape} {rows.dtype}"
            )
        # A copy: reading a mapped file that somebody cuts would end the process.
        return Shard(rows if mapped else np.array(rows), skipped)

    def write(self, shard: int, rows: Array, skipped: list[Skipped]) -> None:
        """Put a shard in its place: the rows first, then the note that makes them count."""
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(rows), allow_pickle=False)
        checksum = hashlib.sha256(buffer.getbuffer()).hexdigest()
        path = self._file(shard, checksum)
        replace_file(path, [buffer.getbuffer()])
        note = {
            "entry": self.address,
            "shard": shard,
            "sha256": checksum,
            "skipped": [list(item) for item in skipped],
        }
        content = json.dumps(note).encode()
        checksum = hashlib.sha256(content).hexdigest()
        replace_file(self.folder / f"{shard:05}.json", [content, b"\n", checksum.encode()])
        for old in self.folder.glob(f"{shard:05}-*.npy"):
            if old != path:
                old.unlink(missing_ok=True)  # a damaged one, which this replaces

    def claim(self, shard: int) -> FileLock | None:
        """A lock on making one shard, or None if another process is at it.

        The system frees the lock of a process that dies. Should two hold it all the same, they
        write the same shard twice, whole each time.
        """
        lock = FileLock(self.folder / f"{shard:05}.lock", blocking=False, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            return None
        for unfinished in self.folder.glob(f".{shard:05}[-.]*"):
            unfinished.unlink(missing_ok=True)  # what a killed process was writing
        return lock

    @staticmethod
    def release(claim: FileLock) -> None:
        """Let others make the shard, if the claim still holds."""
        if claim.is_locked:
            Path(claim.lock_file).unlink(missing_ok=True)
            claim.release()

    def tidy(self) -> None:
        """Once all shards are there, drop claims that a kill left over."""
        for lock in self.folder.glob("[0-9]*.lock"):
            lock.unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes on disk."""
        total = 0
        for file in self.folder.iterdir():
            with suppress(FileNotFoundError):  # claims come and go
                total += file.stat().st_size
        return total

    def present(self) -> list[int]:
        """The shards whose files are there in full length."""
        return [s for s in self._noted() if self.problem(s, thorough=False) is None]

    def _noted(self) -> list[int]:
        """The shards that have a note: few, however many a spoilt entry.json speaks of."""
        names = (path.stem for path in self.folder.glob("[0-9]*.json"))
        return sorted(int(n) for n in names if n.isdecimal() and int(n) < self.n_shards)

    def damage(self) -> Iterator[tuple[int, str]]:
        """Every shard that is there and cannot be used, with the reason."""
        for shard in self._noted():
            problem = self.problem(shard)
            if problem == "missing":
                problem = f"shard {shard}: its note was changed"
            if problem is not None:
                yield shard, problem


def parsed(content: bytes) -> Any:
    """JSON, or None where it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _is_skipped(item: Any) -> bool:
    kinds = (int, str, str)
    return isinstance(item, list) and [type(value) for value in item] == list(kinds)


def describe(identity: dict[str, Any], **more: Any) -> bytes:
    """The content of entry.json."""
    about = {"format": FORMAT, "identity": identity, **more, "created": int(time.time())}
    return json.dumps(about, indent=2, ensure_ascii=False).encode() + b"\n"
