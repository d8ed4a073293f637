"""Read a model folder, whatever others do to it meanwhile."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from dkvb._support import files
from dkvb._support.files import Contents, State
from dkvb.estimators.serialisation import estimator_from
from dkvb.store.classifiers import keeps_ids, prepared, replay, working_copy
from dkvb.store.history import Entry, entries_of, entry_from, in_sequence
from dkvb.store.journal import UNDO, Journal, JournalWarning, read_journal
from dkvb.store.layout import JOURNAL, SNAPSHOT, is_keys_name
from dkvb.store.settled import identities, read_settled


@dataclass(frozen=True)
class Model:
    """What a folder holds, read at one moment."""

    classifier: Any
    encoder: str | None  # the name of what made the embeddings, if it is known
    history: tuple[Entry, ...] = ()
    pending: int = 0  # operations in the journal
    journal_ids: tuple[str | None, ...] = ()  # of these operations, in the order of the journal
    undoable: Entry | None = None  # the last operation, if it can be undone
    snapshot: str = ""  # the digest of the snapshot
    journal_bytes: int | None = None  # of whole records; None where no journal continues it
    replay_seconds: float = 0.0
    encoder_fingerprint: str | None = None  # of its weights and settings, if they are known
    keys_file: str | None = None  # the name of the file of keys
    obsolete: tuple[str, ...] = ()  # names of files that this snapshot replaced
    shards: tuple[Entry, ...] = ()  # what merged models had learned: the manifest

    @property
    def width(self) -> int | None:
        """Width of the embeddings that it has learned; None before there were any."""
        return getattr(self.classifier, "n_features_in_", None)

    @property
    def keeps_ids(self) -> bool:
        """Whether learned rows have ids."""
        return keeps_ids(self.classifier)

    def ids(self) -> list[Any]:
        """Return the ids of learned rows, where they have some."""
        return [one for one in self.classifier.rows()[0] if one is not None]


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
        encoder_fingerprint=facts.fact("encoder_fingerprint", (str, type(None))),
        keys_file=next(iter(_keys_in_use(contents.state)), None),
        obsolete=_obsolete(facts),
        shards=_shards(facts),
    )


def _shards(facts: State) -> tuple[Entry, ...]:
    return tuple(entry_from(facts.path, one) for one in facts.fact("shards", list))


def _read_once(path: Path, device: str) -> tuple[tuple[Model, Journal | None], bool]:
    contents = files.read(path / SNAPSHOT, "estimator")
    journal = read_journal(path / JOURNAL)
    model = model_of(contents, device)
    if journal is None or journal.snapshot != contents.digest:
        return (model, journal), False
    return (_continued(model, journal, path), journal), True


def _continued(model: Model, journal: Journal, path: Path) -> Model:
    """The model with what the journal holds beyond what the model has of it."""
    start, history, ids = perf_counter(), list(model.history), list(model.journal_ids)
    for record in journal.records[len(ids) :]:
        replay(model.classifier, record.operation, record.state)
        entries = entries_of(path / JOURNAL, record.state.facts)
        history += entries
        ids.append(entries[-1].id)
    last = next((one for one in reversed(journal.records) if one.operation != UNDO), None)
    return replace(
        model,
        history=in_sequence(history),
        pending=len(journal.records),
        journal_ids=tuple(ids),
        undoable=None if last is None else entries_of(path / JOURNAL, last.state.facts)[-1],
        journal_bytes=journal.length,
        replay_seconds=model.replay_seconds + perf_counter() - start,
    )


class Following:
    """A model that another process changes, read again as far as it has changed."""

    def __init__(self, path: str | Path, device: str = "cpu") -> None:
        self._path, self._device = Path(path), device
        self._seen = identities(self._path)  # before the model: what comes later is seen then
        self.model = self._read()

    def _read(self) -> Model:
        """The model on disk; whoever follows it does not wait for its first change."""
        model = read_folder(self._path, self._device)
        return replace(model, classifier=prepared(model.classifier))

    def look(self) -> Model:
        """Return the model as it is now; what was appended to its journal is all that is read."""
        seen = identities(self._path)
        if seen == self._seen:
            return self.model
        journal = read_journal(self._path / JOURNAL)
        model = self.model
        if journal is not None and journal.snapshot == model.snapshot and _begins(journal, model):
            copied = replace(model, classifier=working_copy(model.classifier))
            self.model = _continued(copied, journal, self._path)
        else:
            self.model = self._read()
        self._seen = seen
        return self.model


def _begins(journal: Journal, model: Model) -> bool:
    """Whether a journal begins with what the model has of it; an undo takes a record out."""
    facts = [one.state.facts.get("entry") for one in journal.records[: len(model.journal_ids)]]
    ids = tuple(one[3] if isinstance(one, list) and len(one) > 3 else None for one in facts)
    return ids == model.journal_ids


def named_files(state: State) -> tuple[str, ...]:
    """Return the names of all files of keys that a snapshot names, in use or obsolete."""
    return (*_keys_in_use(state), *_obsolete(state.part("folder")))


def _keys_in_use(state: State) -> tuple[str, ...]:
    name = state.part("keys").facts.get("file")
    return (name,) if is_keys_name(name) else ()


def _obsolete(facts: State) -> tuple[str, ...]:
    return tuple(filter(is_keys_name, facts.fact("obsolete", list)))
