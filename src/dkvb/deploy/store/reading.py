"""Read a model folder, whatever others do to it meanwhile."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from dkvb._support import files
from dkvb._support.files import Contents, FileError, State
from dkvb.deploy.store.classifiers import replay
from dkvb.deploy.store.history import Entry, entry_from
from dkvb.deploy.store.journal import FRAMING, Journal, JournalWarning, read_journal
from dkvb.deploy.store.layout import JOURNAL, SNAPSHOT, check_links, holds_model, is_keys_name
from dkvb.estimators.serialisation import estimator_from

_PATIENCE = 60.0  # seconds in which a model that changes all the time is read again

Identity = tuple[int, int, int]


@dataclass(frozen=True)
class Model:
    """What a folder holds, read at one moment."""

    classifier: Any
    encoder: str | None  # the name of what made the embeddings, if it is known
    history: tuple[Entry, ...] = ()
    pending: int = 0  # operations in the journal
    snapshot: str = ""  # the digest of the snapshot
    journal_bytes: int | None = None  # of whole records; None where no journal continues it
    replay_seconds: float = 0.0
    encoder_fingerprint: str | None = None  # of its weights and settings, if they are known
    journal_framing: int = FRAMING
    keys_file: str | None = None  # the name of the file of keys
    obsolete: tuple[str, ...] = ()  # names of files that this snapshot replaced

    @property
    def width(self) -> int | None:
        """Width of the embeddings that it has learned; None before there were any."""
        return getattr(self.classifier, "n_features_in_", None)


def read_folder(path: str | Path, device: str = "cpu") -> Model:
    """Return the model in a folder, as it is now.

    Reading takes no lock. Where a process changes the model meanwhile, the result is the model
    before or after that change.
    """
    path = Path(path)
    if path.is_file():
        raise ValueError(f"MODEL: expected the folder of a model; got the file {path}")
    if not holds_model(path):
        raise FileError("missing", f"{path}: expected the folder of a model; it has no {SNAPSHOT}")
    deadline = monotonic() + _PATIENCE
    while True:
        before = _identities(path)
        try:
            check_links(path)
            model, journal = _read_once(path, device)
        except (FileError, OSError):
            # Files that a writer replaces meanwhile may miss one another.
            if _identities(path) == before:
                raise
        else:
            settled = _identities(path) == before
            # A journal that continues the snapshot was read after it, so both are of one moment.
            if settled or model.journal_bytes is not None:
                if settled and journal is not None and journal.cut:
                    warnings.warn(journal.cut_warning(path / JOURNAL), JournalWarning, stacklevel=2)
                return model
        if monotonic() > deadline:
            raise FileError("damaged", f"{path}: the model changes faster than it can be read")
        sleep(0.001)


def model_of(contents: Contents, device: str = "cpu") -> Model:
    """Return the model that a snapshot holds, without what was learned since."""
    facts = contents.state.part("folder")
    return Model(
        estimator_from(contents.state, device),
        facts.fact("encoder", (str, type(None))),
        tuple(entry_from(facts, one) for one in facts.fact("history", list)),
        snapshot=contents.digest,
        encoder_fingerprint=_optional_fact(facts, "encoder_fingerprint"),
        keys_file=next(iter(_keys_in_use(contents.state)), None),
        obsolete=_obsolete(facts),
    )


def _read_once(path: Path, device: str) -> tuple[Model, Journal | None]:
    contents = files.read(path / SNAPSHOT, "estimator")
    journal = read_journal(path / JOURNAL)
    model = model_of(contents, device)
    if journal is None or journal.snapshot != contents.digest:
        return model, journal
    start, history = perf_counter(), list(model.history)
    for record in journal.records:
        replay(model.classifier, record)
        history.append(entry_from(record, record.fact("entry", list)))
    continued = replace(
        model,
        history=tuple(history),
        pending=len(journal.records),
        journal_bytes=journal.length,
        journal_framing=journal.framing,
        replay_seconds=perf_counter() - start,
    )
    return continued, journal


def named_files(state: State) -> tuple[str, ...]:
    """Return the names of all files of keys that a snapshot names, in use or obsolete."""
    return (*_keys_in_use(state), *_obsolete(state.part("folder")))


def _keys_in_use(state: State) -> tuple[str, ...]:
    name = state.part("keys").facts.get("file")
    return (name,) if is_keys_name(name) else ()


def _obsolete(facts: State) -> tuple[str, ...]:
    if "obsolete" not in facts.facts:  # format 2 had none
        return ()
    return tuple(filter(is_keys_name, facts.fact("obsolete", list)))


def _optional_fact(facts: State, name: str) -> str | None:
    if name not in facts.facts:  # format 1 had none
        return None
    value: str | None = facts.fact(name, (str, type(None)))
    return value


def _identities(path: Path) -> tuple[Identity | None, Identity | None]:
    return _identity(path / SNAPSHOT), _identity(path / JOURNAL)


def _identity(path: Path) -> Identity | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
