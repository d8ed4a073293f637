"""The folder of a model: who may change it, and in which order its files change.

    model.safetensors    the snapshot: the classifier, its encoder, its history
    keys-….safetensors   the keys, which no change of the classifier changes
    journal              what was learned since the snapshot
    lock                 held by the one process that changes the model

A change is acknowledged (a method returns) when it is on disk. `learn` appends to the journal;
everything else writes a new snapshot in the old one's place and then removes the journal, which
names the snapshot that it continues, and so is not read with another one in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from dkvb._support import files
from dkvb._support.files import FileError, State, atomic
from dkvb.deploy.store.history import Entry, entry, entry_facts, entry_from, shortened
from dkvb.deploy.store.journal import append, read_journal
from dkvb.deploy.store.lock import FolderLock
from dkvb.estimators.bottleneck import BottleneckClassifier
from dkvb.estimators.serialisation import Saved, estimator_from
from dkvb.estimators.traces import learn_traces, traces

SNAPSHOT, JOURNAL, LOCK = "model.safetensors", "journal", "lock"
MOST_BYTES = 1 << 24  # of a journal, unless the snapshot is larger
MOST_SECONDS = 2.0  # that learning a journal again may take
_KEYS = "keys-*.safetensors"
_TRIES = 20


@dataclass(frozen=True)
class Model:
    """What a folder holds, read at one moment."""

    classifier: Any
    encoder: str | None  # the name of what made the embeddings, if it was told
    history: tuple[Entry, ...]
    pending: int  # operations in the journal
    snapshot: str  # the digest of the snapshot
    journal_bytes: int | None  # that count; None where there is no journal of this snapshot
    replay_seconds: float
    encoder_fingerprint: str | None = None  # of its weights and settings, if they are known

    @property
    def width(self) -> int | None:
        """Width of the rows that it has learned; None before there were any."""
        return getattr(self.classifier, "n_features_in_", None)


def read_folder(path: str | Path, device: str = "cpu") -> Model:
    """The model in a folder, as it is now; nobody who changes it meanwhile can disturb."""
    path = Path(path)
    if path.is_file():
        raise ValueError(f"MODEL: expected the folder of a model; got the file {path}")
    snapshot = path / SNAPSHOT
    for _ in range(_TRIES):
        before = _identity(snapshot)
        contents = files.read(snapshot, "estimator")
        journal = read_journal(path / JOURNAL)
        # The journal continues the snapshot that was there while it was read.
        if _identity(snapshot) == before:
            break
    else:
        raise FileError("damaged", f"{path}: the model changes faster than it can be read")
    own = contents.state.part("folder")
    history = [entry_from(own, facts) for facts in own.fact("history", list)]
    classifier = estimator_from(contents.state, device)
    records = journal.records if journal and journal.snapshot == contents.digest else []
    start = perf_counter()
    for record in records:
        if not isinstance(classifier, BottleneckClassifier):
            raise record.damaged("expected no journal for a classifier that has no codes")
        learn_traces(classifier, record)
        history.append(entry_from(record, record.fact("entry", list)))
    return Model(
        classifier,
        own.fact("encoder", (str, type(None))),
        tuple(history),
        len(records),
        contents.digest,
        journal.length if journal and records else None,
        perf_counter() - start,
        _fingerprint_from(own),
    )


def create(
    path: str | Path,
    classifier: Saved,
    *,
    encoder: str | None = None,
    encoder_fingerprint: str | None = None,
    rows: int | None = None,
    replace: bool = False,
) -> ModelFolder:
    """A folder for a classifier, open for changes; `replace` allows one in another's place.

    `encoder` names what made the embeddings and `encoder_fingerprint` tells its weights from
    others, `rows` says how many the classifier has learned.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"path: expected a folder, or a new name; got the file {path}")
    if not hasattr(classifier, "classes_"):
        raise ValueError("classifier: expected one that has learned something; got none; fit it")
    if not replace and not (path / SNAPSHOT).exists() and (found := strangers(path)):
        raise ValueError(
            f"{path}: expected a new or an empty folder; found {', '.join(found[:3])}, which no "
            "model has; choose another name, or put the model beside that with replace=True"
        )
    path.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(path / LOCK)
    lock.acquire()
    try:
        if (path / SNAPSHOT).exists() and not replace:
            raise ValueError(
                f"{path}: expected a new name, or leave to replace the model there; found one"
            )
        model = Model(classifier, encoder, (), 0, "", None, 0.0, encoder_fingerprint)
        folder = ModelFolder(path, lock, model)
        folder._write(classifier, entry("fit", _rows_of(classifier) if rows is None else rows))
        atomic.sync_folder(path.resolve().parent)
        return folder
    except BaseException:
        lock.release()
        raise


def strangers(path: Path) -> list[str]:
    """Names in a folder that are no model's, sorted; hidden ones do not count.

    What a process that was killed while it made a model left behind is a model's.
    """
    names = sorted(found.name for found in path.iterdir()) if path.is_dir() else []
    own = (SNAPSHOT, JOURNAL, LOCK)
    return [
        name
        for name in names
        if name not in own and not fnmatchcase(name, _KEYS) and not name.startswith(".")
    ]


def open_folder(path: str | Path, device: str = "cpu") -> ModelFolder:
    """The model in a folder, open for changes by this process and no other."""
    path = Path(path)
    if not (path / SNAPSHOT).is_file():
        raise FileError(
            "missing", f"{path}: expected the folder of a model; there is none; make one with fit"
        )
    lock = FolderLock(path / LOCK)
    lock.acquire()
    try:
        return ModelFolder(path, lock, read_folder(path, device), device)
    except BaseException:
        lock.release()
        raise


class ModelFolder:
    """A model that this process may change; an error leaves the one on disk as it was."""

    def __init__(self, path: Path, lock: FolderLock, model: Model, device: str = "cpu") -> None:
        self.path = path
        self._lock, self._model, self._device = lock, model, device

    @property
    def classifier(self) -> Any:
        """The classifier as it is on disk; change it through this object only."""
        return self._model.classifier

    @property
    def model(self) -> Model:
        """All that the folder holds."""
        return self._model

    def learn(self, X: Any, y: Any) -> int:
        """Learn rows X (n, m) with labels y (n,); the number of rows."""
        classifier = self.classifier
        if not isinstance(classifier, BottleneckClassifier):  # rows leave no traces but themselves
            return self._change("learn", len(y), lambda: classifier.partial_fit(X, y))
        record, start, model = traces(classifier, X, y), perf_counter(), self._model
        try:
            count = learn_traces(classifier, record)
            one = entry("learn", count)
            record.facts["entry"] = entry_facts(one)
            length = append(self.path / JOURNAL, model.snapshot, record, model.journal_bytes)
        except BaseException:
            self._reread()
            raise
        seconds = model.replay_seconds + perf_counter() - start
        self._model = dataclasses.replace(
            model,
            history=(*model.history, one),
            pending=model.pending + 1,
            journal_bytes=length,
            replay_seconds=seconds,
        )
        if length > max(MOST_BYTES, self._size()) or seconds > MOST_SECONDS:
            try:
                self.compact()
            except OSError:  # what was learned is on disk all the same; the next one tries again
                self._reread()
        return count

    def forget(self, label: Any) -> int:
        """Forget a class; when this returns, no file of this folder holds anything of it."""
        count = _rows_of(self.classifier, label)
        return self._change("forget", count, lambda: self.classifier.forget(label))

    def forget_samples(self, X: Any, y: Any) -> int:
        """Forget rows that were learned with labels y (n,), likewise."""
        return self._change("forget_samples", len(y), lambda: self.classifier.forget_samples(X, y))

    def merge(self, *others: Any) -> int:
        """Add all that other classifiers have learned with the same keys and rule."""

        def change() -> None:
            for other in others:
                self.classifier.merge(other)

        return self._change("merge", sum(map(_rows_of, others)), change)

    def compact(self) -> None:
        """Write a snapshot of the model as it is, and begin a new journal."""
        self._write(self.classifier, None)

    def close(self) -> None:
        """Let others change the model."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _change(self, operation: str, count: int, change: Any) -> int:
        try:
            if not hasattr(self.classifier, operation) and operation != "learn":
                raise ValueError(
                    f"{operation}: expected a bottleneck classifier; "
                    f"got a {type(self.classifier).__name__}, which cannot"
                )
            change()
            self._write(self.classifier, entry(operation, count))
        except BaseException:
            self._reread()
            raise
        return count

    def _reread(self) -> None:
        """After an error: what is on disk is what counts."""
        self._model = read_folder(self.path, self._device)

    def _write(self, classifier: Any, one: Entry | None) -> None:
        """Put a new snapshot in the old one's place, and take away all that it replaces."""
        model = self._model
        history = shortened(model.history if one is None else (*model.history, one))
        keys = None
        if isinstance(classifier, BottleneckClassifier):
            first = classifier.generations_[0]
            keys = self.path / f"keys-{first.fingerprint[:16]}.safetensors"
            state = classifier._file_state(self.path, keys)
        else:
            state = classifier._file_state()
        facts = {
            "history": [entry_facts(e) for e in history],
            "encoder": model.encoder,
            "encoder_fingerprint": model.encoder_fingerprint,
        }
        digest = files.write(
            self.path / SNAPSHOT, "estimator", state.with_part("folder", State(facts=facts))
        )
        self._model = Model(
            classifier, model.encoder, history, 0, digest, None, 0.0, model.encoder_fingerprint
        )
        self._clean(keys)

    def _clean(self, keys: Path | None) -> None:
        """Remove the journal, keys no longer in use, and what killed processes left behind."""
        _remove([self.path / JOURNAL])
        _remove(self.path.glob(f".*{atomic.UNFINISHED}"))
        _remove(other for other in self.path.glob(_KEYS) if other != keys)
        atomic.sync_folder(self.path)

    def _size(self) -> int:
        return (self.path / SNAPSHOT).stat().st_size


def _fingerprint_from(own: State) -> str | None:
    if "encoder_fingerprint" not in own.facts:  # format 1 knew none
        return None
    fingerprint: str | None = own.fact("encoder_fingerprint", (str, type(None)))
    return fingerprint


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        atomic.remove(path)


def _identity(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        raise FileError(
            "missing", f"{path.parent}: expected the folder of a model; it has no {path.name}"
        ) from None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _rows_of(classifier: Any, label: Any = None) -> int:
    """How many rows a bottleneck classifier has learned, of a class or in all; 0 for others."""
    if not isinstance(classifier, BottleneckClassifier):
        return 0
    memory = classifier._memory
    if label is None:
        return int(memory.rows.sum())
    return int(memory.rows[memory.labels.columns([label], "label")[0]])
