"""Which files of a folder are a model's own, and which of them may be removed.

    model.safetensors    the snapshot: the classifier, its encoder, its history
    keys-….safetensors   the keys, which no change of the classifier changes
    journal              what was learned since the snapshot
    lock                 held by the one process that changes the model

Names that begin with a dot and end in ".unfinished" are being written, or were when a process was
killed. Everything else in the folder is foreign and is left alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from dkvb._support.files import atomic
from dkvb.store.lock import is_own_lock

SNAPSHOT, JOURNAL, LOCK = "model.safetensors", "journal", "lock"
_KEYS = re.compile(r"keys-[0-9a-f]{16}\.safetensors")
_UNFINISHED = re.compile(rf"\.(.+)\.[0-9a-f]{{8}}{re.escape(atomic.UNFINISHED)}")


def keys_name(fingerprint: str) -> str:
    """The name of the file of keys with that fingerprint."""
    return f"keys-{fingerprint[:16]}.safetensors"


def is_keys_name(name: object) -> TypeGuard[str]:
    """Whether `keys_name` gives such names."""
    return isinstance(name, str) and _KEYS.fullmatch(name) is not None


def holds_model(folder: Path) -> bool:
    """Whether there is a snapshot; a link in its place is refused."""
    atomic.refuse_link(folder / SNAPSHOT)
    return (folder / SNAPSHOT).is_file()


def check_links(folder: Path) -> None:
    """Raise where one of the model's own files is a link, a folder or a device."""
    for name in _names(folder):
        if name in (SNAPSHOT, JOURNAL, LOCK) or is_keys_name(name):
            atomic.refuse_link(folder / name)


def check_target(folder: Path, overwrite: bool) -> None:
    """Raise unless a model may be created in this folder.

    It may where there is nothing, or only what a killed process left while it created one, and,
    with `overwrite`, where there is a model.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"MODEL: expected a folder, or a new name; got the file {folder}")
    if holds_model(folder):
        if not overwrite:
            raise ValueError(
                f"{folder}: expected a new folder; there is a model; choose another name, learn "
                "more with dkvb learn, or replace it with --overwrite (overwrite=True)"
            )
        check_links(folder)
    elif foreign := foreign_names(folder):
        shown = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise ValueError(
            f"{folder}: expected a new or an empty folder, or that of a model; found {shown} and "
            "no model; choose another name"
        )


def foreign_names(folder: Path) -> list[str]:
    """Return the names in a folder without a snapshot that no `create` has left there, sorted."""
    unfinished = {path.name: target for path, target in _unfinished(folder)}
    left = {*unfinished, *filter(is_keys_name, unfinished.values())}
    foreign = [name for name in _names(folder) if name not in left]
    if LOCK in foreign and is_own_lock(folder / LOCK):
        foreign.remove(LOCK)
    return foreign


def mark_unfinished(path: Path) -> Path:
    """Create an empty file that says that `path` is ours to remove, should we be killed now."""
    marker = atomic.unfinished_path(path)
    os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, atomic.PRIVATE))
    atomic.sync_folder(path.parent)
    return marker


def remove_leftovers(folder: Path, keys: str | None, obsolete: Iterable[str]) -> None:
    """Remove what killed processes left behind, and `obsolete` files of keys.

    `keys` names the file of keys in use. Of keys only those go that a marker names, or that the
    snapshot calls obsolete.
    """
    unfinished = _unfinished(folder)
    named = {*(target for _, target in unfinished), *obsolete} - {keys}
    for name in sorted(filter(is_keys_name, named)):
        if (folder / name).exists():
            atomic.remove(folder / name)
    for path, _ in unfinished:  # last, since they say what else is to be removed
        atomic.remove(path)


def mode_of(folder: Path) -> int:
    """Return the mode that the files of this model have."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE((folder / SNAPSHOT).stat().st_mode)
    return atomic.PRIVATE


def _unfinished(folder: Path) -> list[tuple[Path, str]]:
    """The model's own unfinished files, each with the name of what it was to become."""
    found = []
    for name in _names(folder):
        match = _UNFINISHED.fullmatch(name)
        own = match is not None and (match[1] in (SNAPSHOT, JOURNAL) or is_keys_name(match[1]))
        if match and own and stat.S_ISREG((folder / name).lstat().st_mode):
            found.append((folder / name, match[1]))
    return found


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        return []
