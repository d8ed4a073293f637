"""The cache: entries addressed by what was embedded and how, so that nothing is embedded twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from dkvb._support.files import replace_file
from dkvb.embedding.cache.digests import is_file_memory
from dkvb.embedding.cache.entry import ABOUT, DTYPES, FORMAT, Entry, describe, parsed

_FIELDS = {
    "identity": dict,
    "dimension": int,
    "shard_rows": int,
    "batch_rows": int,
    "data_name": str,
    "encoder_name": str,
    "created": int,
}
_LONGEST = 1 << 20  # bytes of a description


def default_folder() -> Path:
    """Where caches go on this system: $XDG_CACHE_HOME/dkvb, or ~/.cache/dkvb."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dkvb"


def address(identity: dict[str, Any]) -> str:
    """A short name for everything that decides the rows.

    >>> address({"a": 1, "b": 2}) == address({"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False)
    # A damaged entry.json may hold half of a surrogate pair, which plain UTF-8 refuses.
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()[:32]


class Cache:
    """A folder of entries, shared by any number of processes."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder else default_folder()
        self._entries = self.folder / "embeddings"

    @property
    def file_memory(self) -> Path:
        """Where the hashes of files are remembered."""
        return self.folder / "files.sqlite"

    def open(self, identity: dict[str, Any], **plan: Any) -> Entry:
        """The entry of this identity, made where there is none yet.

        `plan` says how rows are cut into shards and batches; that of an entry which is there wins,
        since a batch of another size may differ in its last bits.
        """
        folder = self._entries / address(identity)
        found = _read(folder)
        if found is None:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "entry.lock"):
                found = _read(folder)
                if found is None:  # still: nobody was faster
                    replace_file(folder / ABOUT, [describe(identity, **plan)])
                    found = _read(folder)
        if found is None or found.identity != _as_json(identity):
            raise ValueError(
                f"cache: expected an entry of its own at {folder}; what lies there is foreign; "
                "delete that folder"
            )
        return found

    def entries(self) -> Iterator[Entry]:
        """Every valid entry, oldest first; see `damaged` for the others."""
        found = [entry for folder in self._folders() if (entry := _read(folder)) is not None]
        yield from sorted(found, key=lambda entry: (entry.about["created"], entry.address))

    def damaged(self) -> list[Path]:
        """Folders of entries whose description is missing or was changed."""
        return [folder for folder in self._folders() if _read(folder) is None]

    def _folders(self) -> list[Path]:
        """Folders that have the name of an entry; a link is none."""
        inside = sorted(self._entries.iterdir()) if self._entries.is_dir() else ()
        return [
            folder
            for folder in inside
            if re.fullmatch("[0-9a-f]{32}", folder.name)
            and folder.is_dir()
            and not folder.is_symlink()
        ]

    def find(self, start: str) -> Entry:
        """The one entry whose address starts so."""
        found = [entry for entry in self.entries() if entry.address.startswith(start)]
        if not start or len(found) != 1:
            raise ValueError(
                f"entry: expected the start of one address in {self.folder}; {start!r} fits "
                f"{len(found)}; dkvb cache ls shows them"
            )
        return found[0]

    def remove(self, entry: Entry) -> int:
        """Delete an entry; returns the bytes that were freed."""
        size = entry.size()
        (entry.folder / ABOUT).unlink(missing_ok=True)  # first: half an entry is none
        shutil.rmtree(entry.folder)
        return size

    def remove_all(self) -> tuple[int, int]:
        """Delete all entries, damaged ones too, and the hashes of files; entries and bytes freed.

        Files that are not the cache's own are left, as are downloaded data sets.
        """
        folders = self._folders()
        freed = sum(self.remove(Entry(folder, {})) for folder in folders)
        for suffix in ("", "-journal", "-wal", "-shm"):
            path = self.file_memory.with_name(self.file_memory.name + suffix)
            if path.is_file() and (suffix or is_file_memory(path)):
                freed += path.stat().st_size
                path.unlink()
        for folder in (self._entries, self.folder):
            with suppress(OSError):  # it is not empty, or not there
                folder.rmdir()
        return len(folders), freed


def _read(folder: Path) -> Entry | None:
    """The entry in a folder; None if there is none, or one that this version cannot trust."""
    path = folder / ABOUT
    try:
        regular = path.is_file() and path.stat().st_size < _LONGEST
        about = parsed(path.read_bytes()) if regular else None
    except OSError:
        return None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        return None
    valid = all(_fits(about.get(field), kind) for field, kind in _FIELDS.items())
    identity = about["identity"] if valid else {}
    valid = (
        valid
        and identity.get("dtype") in DTYPES
        and isinstance(identity.get("encoder"), dict)
        and isinstance(identity.get("data"), dict)
        and _fits(identity["data"].get("items"), int)
        and address(identity) == folder.name
    )
    return Entry(folder, about) if valid else None


def _fits(value: Any, kind: type) -> bool:
    """Whether a value is of that type; a number is at least 1, and one that arrays can have."""
    if isinstance(value, int) and kind is int:
        return not isinstance(value, bool) and 1 <= value < 1 << 40
    return type(value) is kind


def _as_json(identity: dict[str, Any]) -> Any:
    """What an identity is after a trip to disk: tuples have become lists."""
    return json.loads(json.dumps(identity))
