"""The cache: entries addressed by what was embedded and how, so that nothing is embedded twice."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from dkvb._support.files import replace_file
from dkvb.embedding.cache.entry import ABOUT, FORMAT, Entry, describe

_FIELDS = ("identity", "dimension", "shard_rows", "batch_rows", "data_name", "encoder_name")


def default_folder() -> Path:
    """Where caches go on this system: $XDG_CACHE_HOME/dkvb, or ~/.cache/dkvb."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dkvb"


def address(identity: dict[str, Any]) -> str:
    """A short name for everything that decides the rows.

    >>> address({"a": 1, "b": 2}) == address({"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


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
        """Every whole entry, oldest first; what else lies about is passed over."""
        folders = self._entries.iterdir() if self._entries.is_dir() else ()
        found = [entry for folder in folders if (entry := _read(folder)) is not None]
        yield from sorted(found, key=lambda entry: (entry.about["created"], entry.address))

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
        (entry.folder / ABOUT).unlink()  # first: half an entry is none
        shutil.rmtree(entry.folder)
        return size


def _read(folder: Path) -> Entry | None:
    """The entry in a folder; None if there is none, or one that this version cannot trust."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        return None
    whole = all(field in about for field in _FIELDS)
    return Entry(folder, about) if whole and address(about["identity"]) == folder.name else None


def _as_json(identity: dict[str, Any]) -> Any:
    """What an identity is after a trip to disk: tuples have become lists."""
    return json.loads(json.dumps(identity))
