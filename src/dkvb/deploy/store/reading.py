"""Read a model folder, whatever others do to it meanwhile."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from dkvb._support import files
from dkvb._support.files import Contents, State
from dkvb.deploy.store.classifiers import replay
from dkvb.deploy.store.framing import FRAMING
from dkvb.deploy.store.history import Entry, entry_from
from dkvb.deploy.store.journal import Journal, JournalWarning, read_journal
from dkvb.deploy.store.layout import JOURNAL, SNAPSHOT, is_keys_name
from dkvb.deploy.store.settled import read_settled
from dkvb.estimators.serialisation import estimator_from


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
    (model, journal), settled = read_settled(path, lambda path: _read_once(path, device))
    if settled and journal is not None and journal.cut:
        warnings.warn(journal.cut_warning(path / JOURNAL), JournalWarning, stacklevel=2)
    return model


def model_of(contents: Contents, device: str = "cpu") -> Model:
    """Return the model that a snapshot holds, without what was learned since."""
    facts = contents.state.part("folder")
    return Model(
        estimator_from(contents.state, device),
        facts.fact("encoder", (str, type(None))),
        tuple(entry_from(contents.state.path, one) for one in facts.fact("history", list)),
        snapshot=contents.digest,
        encoder_fingerprint=_optional_fact(facts, "encoder_fingerprint"),
        keys_file=next(iter(_keys_in_use(contents.state)), None),
        obsolete=_obsolete(facts),
    )


def _read_once(path: Path, device: str) -> tuple[tuple[Model, Journal | None], bool]:
    contents = files.read(path / SNAPSHOT, "estimator")
    journal = read_journal(path / JOURNAL)
    model = model_of(contents, device)
    if journal is None or journal.snapshot != contents.digest:
        return (model, journal), False
    start, history = perf_counter(), list(model.history)
    for record in journal.records:
        replay(model.classifier, record)
        history.append(entry_from(path / JOURNAL, record.fact("entry", list)))
    continued = replace(
        model,
        history=tuple(history),
        pending=len(journal.records),
        journal_bytes=journal.length,
        journal_framing=journal.framing,
        replay_seconds=perf_counter() - start,
    )
    return (continued, journal), True


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
