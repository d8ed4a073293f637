"""Read files that a writer may replace meanwhile, as they were at one moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from dkvb._support.files import FileError
from dkvb.store.layout import JOURNAL, SNAPSHOT, check_links, holds_model

_PATIENCE = 60.0  # seconds in which a model that changes all the time is read again

Found = TypeVar("Found")
Identity = tuple[int, int, int]


def read_settled(path: Path, read: Callable[[Path], tuple[Found, bool]]) -> tuple[Found, bool]:
    """Return what `read` finds in a model folder, and whether nothing changed meanwhile.

    `read` also says whether the journal that it read continues the snapshot that it read before;
    these two are of one moment, whatever came later. Otherwise it reads again after a change.
    """
    if path.is_file():
        raise ValueError(f"MODEL: expected the folder of a model; got the file {path}")
    if not holds_model(path):
        raise FileError("missing", f"{path}: expected the folder of a model; it has no {SNAPSHOT}")
    deadline = monotonic() + _PATIENCE
    while True:
        before = identities(path)
        try:
            check_links(path)
            found, continued = read(path)
        except (FileError, OSError):
            # Files that a writer replaces meanwhile may miss one another.
            if identities(path) == before:
                raise
        else:
            settled = identities(path) == before
            if settled or continued:
                return found, settled
        if monotonic() > deadline:
            raise FileError("damaged", f"{path}: the model changes faster than it can be read")
        sleep(0.001)


def identities(path: Path) -> tuple[Identity | None, Identity | None]:
    """Return what tells the snapshot and the journal from others that replace them."""
    return _identity(path / SNAPSHOT), _identity(path / JOURNAL)


def _identity(path: Path) -> Identity | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
