"""What was done to a model: operation, count, time and id; never labels or embeddings."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from dkvb._support.files import FileError
from dkvb._support.files.metadata import read_metadata
from dkvb.store.framing import read_raw, records
from dkvb.store.layout import JOURNAL, SNAPSHOT
from dkvb.store.settled import read_settled

MOST = 10_000  # entries that are kept as they are
UNLEARNING = ("forget", "forget_samples")
_LONGEST_ID = 200
_CHUNK = 1 << 16  # rows that are hashed at a time


@dataclass(frozen=True)
class Entry:
    """One operation that was acknowledged."""

    operation: str  # "fit", "learn", "relabel", "rename", "merge_classes", "undo", "forget", ...
    count: int  # of rows
    time: str  # UTC, ISO 8601
    id: str  # a repeated operation with the same id counts once
    digest: str | None = None  # of what was learned, until something is forgotten
    sequence: int = 0  # from 1 on


def entry(
    operation: str,
    count: int,
    id: str | None = None,
    digest: str | None = None,
    *,
    after: tuple[Entry, ...] = (),
) -> Entry:
    """Return the entry of an operation that happens now, after others; its id is random unless
    given."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    last = after[-1].sequence if after else 0
    return Entry(operation, count, time, id or token_hex(8), digest, 1 + max(last, len(after)))


def check_id(operation_id: str | None) -> None:
    """Raise where an operation cannot be called that."""
    if operation_id is None:
        return
    good = isinstance(operation_id, str) and operation_id.isprintable()
    if not good or not 0 < len(operation_id) <= _LONGEST_ID:
        raise ValueError(
            f"operation_id: expected 1 to {_LONGEST_ID} printable characters; got "
            f"{operation_id!r:.60}"
        )


def digest_of(X: Any, y: Any) -> str | None:
    """Return a digest that tells embeddings X (n, m) and labels y (n,) from others.

    None where X is no array: what was computed from embeddings does not tell them.
    """
    embeddings = X if hasattr(X, "shape") else np.asarray(X)
    if not isinstance(embeddings.shape, tuple) or not hasattr(embeddings, "__array__"):
        return None
    digest = hashlib.sha256(repr(tuple(embeddings.shape)).encode())
    try:
        for start in range(0, len(embeddings), _CHUNK):  # they may be mapped, and many
            part = embeddings[start : start + _CHUNK]
            digest.update(np.ascontiguousarray(part, dtype=np.float32).tobytes())
    except (TypeError, ValueError, RuntimeError):
        return None
    digest.update(repr(np.asarray(y).tolist()).encode(errors="surrogatepass"))
    return digest.hexdigest()


def without_digests(history: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the history with no trace of what was learned."""
    return tuple(replace(one, digest=None) for one in history)


def why_final(history: tuple[Entry, ...]) -> str:
    """Return why the last operation that was not undone cannot be undone.

    >>> why_final((Entry("fit", 9, "now", "a"), Entry("forget", 3, "now", "b")))
    'the last operation was a forget, which is final'
    """
    left: list[Entry] = []
    for one in history:
        if one.operation == "undo" and left:
            left.pop()
        else:
            left.append(one)
    if not left:
        return "there is no operation left"
    if left[-1].operation in UNLEARNING:
        return "the last operation was a forget, which is final"
    name = left[-1].operation.replace("merge_classes", "merge of classes")
    return f"the last operation, a {name} of {left[-1].time}, is part of the snapshot already"


def shortened(history: tuple[Entry, ...], most: int = MOST) -> tuple[Entry, ...]:
    """Return the history, if it is long with consecutive equal operations joined in its older half.

    >>> many = [Entry("learn", 1, str(day), str(day)) for day in range(4)]
    >>> [(e.count, e.time) for e in shortened(tuple(many), most=3)]
    [(2, '1'), (1, '2'), (1, '3')]
    """
    if len(history) <= most:
        return history
    old, recent = history[: len(history) // 2], history[len(history) // 2 :]
    joined: list[Entry] = []
    for one in old:
        if joined and joined[-1].operation == one.operation:
            joined[-1] = replace(one, count=joined[-1].count + one.count)
        else:
            joined.append(one)
    return (*joined, *recent)


def entry_facts(one: Entry) -> list[Any]:
    """Return the entry as JSON can hold it."""
    return list(astuple(one))


def entry_from(path: Path | None, facts: Any) -> Entry:
    """Return the entry that `entry_facts` wrote."""
    kinds: tuple[Any, ...] = (str, int, str, str, (str, type(None)), int)
    if (
        not isinstance(facts, list)
        or len(facts) != len(kinds)
        or not all(map(isinstance, facts, kinds))
        or isinstance(facts[1], bool)
        or isinstance(facts[5], bool)
    ):
        raise FileError(
            "damaged",
            f"{path or 'file'}: the content is damaged: history: expected operation, count, time, "
            "id, digest and sequence in an entry",
        )
    return Entry(*facts)


def entries_of(path: Path, facts: dict[str, Any]) -> list[Entry]:
    """Return the entries of a record: its own, after that of the operation that it undid."""
    undone = [entry_from(path, facts["undone"])] if "undone" in facts else []
    return [*undone, entry_from(path, facts.get("entry"))]


def in_sequence(history: list[Entry]) -> tuple[Entry, ...]:
    """Return entries in the order of their operations, which an undo has changed in a journal."""
    return tuple(sorted(history, key=lambda one: one.sequence))


def text_digest(*parts: Any) -> str:
    """Return a digest that tells labels and ids from others."""
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()


def read_history(path: str | Path) -> tuple[Entry, ...]:
    """Return what was done to the model in a folder, by the headers of its files alone."""
    return read_settled(Path(path), _read_once)[0]


def _read_once(path: Path) -> tuple[tuple[Entry, ...], bool]:
    snapshot = path / SNAPSHOT
    with snapshot.open("rb") as file:
        metadata = read_metadata(file, snapshot.stat().st_size, str(snapshot))
    listed = metadata.facts.get("folder/history")
    if not isinstance(listed, list):
        raise FileError("foreign", f"{snapshot}: expected the snapshot of a model folder")
    history = [entry_from(snapshot, one) for one in listed]
    found = [one for one, _, _ in records(read_raw(path / JOURNAL) or b"", path / JOURNAL)]
    continued = bool(found) and found[0].facts.get("snapshot") == metadata.digest
    if continued:
        history += [e for one in found[1:] for e in entries_of(path / JOURNAL, one.facts)]
    return in_sequence(history), continued
