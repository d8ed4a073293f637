"""Change a model folder: one writer at a time, and each change is on disk before it returns.

`learn` appends to the journal. Everything else writes a new snapshot in the place of the old one
and then removes the journal, which names the snapshot that it continues, and so is not read with
another one in between.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from dkvb._support import files
from dkvb._support.files import FileError, State, atomic
from dkvb.store import classifiers, layout
from dkvb.store.history import (
    UNLEARNING,
    Entry,
    check_id,
    digest_of,
    entries_of,
    entry,
    entry_facts,
    shortened,
    text_digest,
    why_final,
    without_digests,
)
from dkvb.store.journal import (
    UNDO,
    append,
    check_own_journal,
    drop_cut,
    read_journal,
    replace_record,
)
from dkvb.store.layout import JOURNAL, LOCK, SNAPSHOT
from dkvb.store.lock import FolderLock
from dkvb.store.reading import Model, named_files, read_folder
from dkvb.store.shards import check_shards, manifest
from dkvb.store.summary import MOST_CLASSES, summarise

MOST_BYTES = 1 << 24  # of a journal, unless the snapshot is larger
MOST_SECONDS = 2.0  # that replaying a journal may take
QUICK_ROWS = 2000  # of a classifier that is solved for after unlearning only to tell its accuracy


class AppliedError(OSError):
    """A change is on disk, and an error came after it."""


class RepeatedIdError(ValueError):
    """Another operation has the id that was given."""


class Learnable(NamedTuple):
    """What one `learn` is given."""

    X: NDArray[Any]  # (n, m)
    y: list[Any]  # (n,)
    ids: list[Any] | None
    operation_id: str | None


def create(
    path: str | Path,
    classifier: Any,
    *,
    encoder: str | None = None,
    encoder_fingerprint: str | None = None,
    rows: int | None = None,
    overwrite: bool = False,
    wait: float = 0.0,
    with_summary: bool = False,
    first: Entry | None = None,
    shards: tuple[Entry, ...] = (),
) -> ModelFolder:
    """Create a folder for a fitted classifier and return it open for changes.

    Parameters
    ----------
    path : str or Path
        A new or an empty folder, or, with `overwrite`, the folder of a model.
    classifier : estimator
        Fitted classifier.
    encoder, encoder_fingerprint : str, optional
        Name of the encoder that made the embeddings, and the fingerprint of its weights.
    rows : int, optional
        How many rows the classifier has learned; counted by the classifier itself unless given.
    overwrite : bool
        Replace the model in the folder. Other files in the folder are left alone.
    wait : float
        Seconds to wait for another process that changes the model.
    with_summary : bool
        Keep what `dkvb inspect` shows, accuracy per class among it, beside each change, so that it
        is read at once.
    first : Entry, optional
        What the classifier has learned: a fit, unless given.
    shards : tuple of Entry
        What models had learned that were merged into the classifier.
    """
    path = Path(path)
    if not hasattr(classifier, "classes_"):
        raise ValueError("classifier: expected one that has learned something; got none; fit it")
    layout.check_target(path, overwrite)
    path.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(path / LOCK)
    lock.acquire(wait)
    try:
        layout.check_target(path, overwrite)  # again: another process may have been faster
        check_own_journal(path / JOURNAL)
        model = Model(
            classifier,
            encoder,
            encoder_fingerprint=encoder_fingerprint,
            obsolete=_replaced_files(path),
            shards=shards,
        )
        folder = ModelFolder(path, lock, model, with_summary=with_summary)
        if first is None:
            first = entry("fit", classifiers.total_count(classifier) if rows is None else rows)
        with folder._following_disk(first):
            folder._write(classifier, (first,))
        atomic.sync_folder(path.resolve().parent)
        return folder
    except BaseException:
        lock.release()
        raise


def open_folder(
    path: str | Path, device: str = "cpu", wait: float = 0.0, *, with_summary: bool = False
) -> ModelFolder:
    """Open the model in a folder for changes by this process and no other.

    `wait` is how many seconds to wait for another process that changes it; `with_summary` is as in
    `create`. What killed processes left behind is removed.
    """
    path = Path(path)
    if not layout.holds_model(path):
        raise FileError(
            "missing", f"{path}: expected the folder of a model; there is none; make one with fit"
        )
    lock = FolderLock(path / LOCK)
    lock.acquire(wait)
    try:
        model = read_folder(path, device)
        folder = ModelFolder(path, lock, model, device, with_summary=with_summary)
        folder._clean()
        return folder
    except BaseException:
        lock.release()
        raise


class ModelFolder:
    """A model that this process may change, from any number of threads.

    What is in memory is what is on disk, also after an error. Each change takes an optional
    `operation_id`: one that is repeated with the same id counts once.
    """

    def __init__(
        self,
        path: Path,
        lock: FolderLock,
        model: Model,
        device: str = "cpu",
        *,
        with_summary: bool = False,
    ) -> None:
        self.path, self._with_summary = path, with_summary
        self._lock, self._device = lock, device
        self._model: Model | None = model  # None: to be read from disk
        self._mutex, self._process, self._open = threading.RLock(), os.getpid(), True

    @property
    def classifier(self) -> Any:
        """The classifier as it is on disk; a later change makes another one."""
        return self.model.classifier

    @property
    def model(self) -> Model:
        """Everything that the folder holds."""
        with self._mutex:
            if self._model is None:
                self._model = read_folder(self.path, self._device)
            return self._model

    def learn(self, X: Any, y: Any, *, ids: Any = None, operation_id: str | None = None) -> int:
        """Learn embeddings X (n, m) with labels y (n,), and return their number.

        `ids` (n,) name the rows, where the classifier keeps ids.
        """
        with self._changing("learn", operation_id, lambda: digest_of(X, y)) as counted:
            if counted is not None:
                return counted
            if ids is not None and not self.model.keeps_ids:
                raise ValueError(
                    "ids: expected a classifier that keeps ids of rows; "
                    f"{type(self.classifier).__name__} keeps none; leave ids out"
                )
            # A journal of large data would be replaced by a snapshot at once.
            large = ids is None and isinstance(X, np.memmap)
            if large or not classifiers.is_journaled(self.classifier):
                classifier = classifiers.working_copy(self.classifier)
                classifier.partial_fit(X, y)
                return self._replace(
                    classifier, self._entry("learn", len(y), operation_id, digest_of(X, y))
                )
            record = classifiers.journal_record(self.classifier, X, y, ids)
            return self._journal("learn", record, operation_id, digest_of(X, y))

    def learn_many(self, batches: Sequence[Learnable]) -> list[int | Exception]:
        """Learn several batches, each an operation of its own, with one wait for the disk.

        Returns the number of rows, or the error, of each: one that is wrong fails alone.
        """
        with self._mutex:
            if self._can_learn_together(batches):
                with suppress(ValueError, TypeError):  # whichever is wrong is found below
                    return list(self._learn_together(batches))
            found: list[int | Exception] = []
            for X, y, ids, operation_id in batches:
                try:
                    found.append(self.learn(X, y, ids=ids, operation_id=operation_id))
                except (ValueError, TypeError, MemoryError, OSError) as error:
                    found.append(error)
            return found

    def _can_learn_together(self, batches: Sequence[Learnable]) -> bool:
        """Whether batches are new, and their order makes no difference to the classifier."""
        names = [one.operation_id for one in batches]
        known = {one.id for one in self.model.history}
        classifier = self.classifier
        return (
            len(batches) > 1
            and self._open
            and classifiers.is_journaled(classifier)
            and not classifier.learns_in_epochs
            and None not in names
            and len({*names} - known) == len(batches)
            and len({one.ids is None for one in batches}) == 1
            and (batches[0].ids is None or self.model.keeps_ids)
        )

    def relabel(
        self,
        X: Any = None,
        y_old: Any = None,
        y_new: Any = None,
        *,
        ids: Any = None,
        operation_id: str | None = None,
    ) -> int:
        """Give rows that were learned with labels y_old, or the rows of some ids, the labels y_new;
        return their number."""
        given = {"X": X, "y_old": y_old} if ids is None else {"ids": ids}
        digest = digest_of(X, [y_old, y_new]) if ids is None else text_digest(ids, y_new)
        with self._changing("relabel", operation_id, lambda: digest) as counted:
            if counted is not None:
                return counted
            self._check_can("relabel_record", "relabel")
            record = self.classifier.relabel_record(**given, y_new=y_new)
            return self._journal("relabel", record, operation_id, digest)

    def rename(self, label: Any, new_label: Any, *, operation_id: str | None = None) -> int:
        """Give a class another name, which no class has yet; return how many rows it has."""
        facts = {"label": label, "new_label": new_label}
        return self._name("rename", facts, operation_id)

    def merge_classes(
        self, labels: Iterable[Any], into: Any, *, operation_id: str | None = None
    ) -> int:
        """Make one class of several, called `into`; return how many rows got another label."""
        facts = {"labels": list(labels), "into": into}
        return self._name("merge_classes", facts, operation_id)

    def undo(self, *, operation_id: str | None = None) -> int:
        """Undo the last learn, relabel, rename or merge of classes; return its number of rows.

        When this returns, the model is what it was before that operation, and no file of the
        folder holds anything of it. What a snapshot holds cannot be undone: a forget, and all that
        was before it.
        """
        with self._changing("undo", operation_id) as counted:
            if counted is not None:
                return counted
            journal = read_journal(self.path / JOURNAL) if self.model.pending else None
            records = [] if journal is None else journal.records
            last = next((one for one in reversed(records) if one.operation != UNDO), None)
            if journal is None or last is None:
                raise ValueError(f"nothing can be undone: {why_final(self.model.history)}")
            undone = entries_of(self.path / JOURNAL, last.state.facts)[-1]
            one = self._entry("undo", undone.count, operation_id)
            # Without its digest, which would tell that the rows are still there.
            (kept,) = without_digests((undone,))
            facts = {"entry": entry_facts(one), "undone": entry_facts(kept)}
            with self._following_disk(one):
                layout.check_links(self.path)
                mode = layout.mode_of(self.path)
                replace_record(self.path / JOURNAL, journal, last, State(facts=facts), mode)
                self._model = None  # read again, without it
            return undone.count

    def tune(self, *, exact: bool = False, progress: bool = False) -> int:
        """Choose all settings again, solve with them, and return how many rows were learned.

        With `exact`, every example is solved for, however many. What was learned stays as it is.
        """

        def change(classifier: Any) -> None:
            classifier.tune(exact=exact, progress=progress)

        self._change("tune", change, None)
        return classifiers.total_count(self.classifier)

    def forget(self, *labels: Any, operation_id: str | None = None) -> int:
        """Forget classes, in one operation, and return how many rows they had.

        When this returns, no file of the folder holds anything of them but keys.
        """

        def change(classifier: Any) -> None:
            for label in dict.fromkeys(labels):
                classifier.forget(label)

        if not labels:
            raise ValueError("labels: expected at least one; got none")
        return self._change("forget", change, operation_id)

    def forget_samples(
        self, X: Any = None, y: Any = None, *, ids: Any = None, operation_id: str | None = None
    ) -> int:
        """Forget embeddings X (n, m) that were learned with labels y (n,), or the rows of some ids,
        likewise."""
        given = {"X": X, "y": y} if ids is None else {"ids": ids}
        return self._change(
            "forget_samples", lambda classifier: classifier.forget_samples(**given), operation_id
        )

    def merge(
        self, *others: Any, shards: tuple[Entry, ...] = (), operation_id: str | None = None
    ) -> int:
        """Add what other classifiers have learned with the same keys.

        `shards` are the entries of what they have learned (`shards.manifest`), none of which may
        be there already.
        """

        def change(classifier: Any) -> None:
            check_shards(manifest(self.model), shards, "others")
            for other in others:
                classifier.merge(other)

        if len({id(other) for other in others}) < len(others):
            raise ValueError("others: expected each classifier once; got one twice, whose rows "
                             "would count twice")  # fmt: skip
        return self._change("merge", change, operation_id, shards)

    def preview(self, X: Any, y: Any) -> Any:
        """Return the classifier that `learn` would make; the model stays as it is."""
        classifier = classifiers.working_copy(self.classifier)
        return classifier.partial_fit(X, y)

    def learned_before(self, X: Any, y: Any) -> Entry | None:
        """Return the entry of a `learn` of exactly these X and y; None if there is none."""
        digest = digest_of(X, y)
        known = (one for one in self.model.history if one.digest is not None)
        return next((one for one in known if one.digest == digest), None)

    def is_done(self, operation: str, operation_id: str | None) -> bool:
        """Return whether an operation of that id was acknowledged before."""
        return self._done_before(operation, operation_id) is not None

    def compact(self) -> None:
        """Write a snapshot of the model as it is, and begin a new journal."""
        with self._changing("compact", None), self._following_disk(None):
            self._write(self.classifier, self.model.history)

    def close(self) -> None:
        """Let others change the model."""
        with self._mutex:
            self._open = False
            if os.getpid() == self._process:  # a fork has no lock to release
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------- changes
    @contextmanager
    def _changing(
        self,
        operation: str,
        operation_id: str | None,
        digest: Callable[[], str | None] = lambda: None,
    ) -> Iterator[int | None]:
        """Hold the mutex; yield the count of this operation if it was done before."""
        check_id(operation_id)
        with self._mutex:
            if not self._open or os.getpid() != self._process:
                raise ValueError(
                    f"{self.path}: expected an open model; got one that was closed or that another "
                    "process opened; open it again with open_folder"
                )
            done = self._done_before(operation, operation_id)
            if done is not None and done.digest not in (None, digest()):
                self._refuse_id(done)
            if done is not None:  # what an error may have left undone
                self._clean()
            yield None if done is None else done.count

    def _done_before(self, operation: str, operation_id: str | None) -> Entry | None:
        if operation_id is None:
            return None
        done = next((one for one in self.model.history if one.id == operation_id), None)
        if done is not None and done.operation != operation:
            self._refuse_id(done)
        return done

    def _refuse_id(self, done: Entry) -> NoReturn:
        raise RepeatedIdError(
            f"operation_id: expected one that no other operation has; got {done.id!r}, which a "
            f"{done.operation} of {done.count} rows had at {done.time}"
        )

    def _change(
        self,
        operation: str,
        change: Callable[[Any], None],
        operation_id: str | None,
        shards: tuple[Entry, ...] = (),
    ) -> int:
        with self._changing(operation, operation_id) as counted:
            if counted is not None:
                return counted
            self._check_can(operation, operation)
            classifier = classifiers.working_copy(self.classifier)
            change(classifier)
            count = abs(
                classifiers.total_count(classifier) - classifiers.total_count(self.classifier)
            )
            return self._replace(classifier, self._entry(operation, count, operation_id), shards)

    def _name(self, operation: str, facts: dict[str, Any], operation_id: str | None) -> int:
        digest = text_digest(facts)
        with self._changing(operation, operation_id, lambda: digest) as counted:
            if counted is not None:
                return counted
            self._check_can(operation, operation)
            record = State(facts=facts)
            return self._journal(operation, record, operation_id, digest)

    def _check_can(self, method: str, operation: str) -> None:
        if not hasattr(self.classifier, method):
            raise ValueError(
                f"{operation}: expected a KernelClassifier; "
                f"got a {type(self.classifier).__name__}, which cannot"
            )

    def _entry(
        self, operation: str, count: int, operation_id: str | None, digest: str | None = None
    ) -> Entry:
        return entry(operation, count, operation_id, digest, after=self.model.history)

    def _journal(
        self, operation: str, record: State, operation_id: str | None, digest: str | None
    ) -> int:
        """Do what a record describes to a copy, append the record, and return its count."""
        self._compact_if_long()  # before, so that the last operation can be undone
        classifier, start = classifiers.working_copy(self.classifier), perf_counter()
        count = classifiers.replay(classifier, operation, record)
        one = self._entry(operation, count, operation_id, digest)
        record.facts["entry"] = entry_facts(one)
        if (summary := self._summary(classifier, operation)) is not None:
            record.facts["summary"] = summary
        with self._following_disk(one):
            self._append(classifier, operation, [record], (one,), start)
        return count

    def _learn_together(self, batches: Sequence[Learnable]) -> list[int]:
        """`learn` of several batches: one update, since their order makes no difference, and one
        record of the journal per batch."""
        self._compact_if_long()
        parts = [classifiers.journal_record(self.classifier, *one[:3]) for one in batches]
        X = np.concatenate([one.X for one in batches])
        ids = [own for one in batches for own in one.ids or ()] or None
        joined = classifiers.journal_record(
            self.classifier, X, [y for b in batches for y in b.y], ids
        )
        classifier, start = classifiers.working_copy(self.classifier), perf_counter()
        classifiers.replay(classifier, "learn", joined)
        entries: tuple[Entry, ...] = ()
        for one, record in zip(batches, parts, strict=True):
            history = (*self.model.history, *entries)
            new = entry(
                "learn", len(one.y), one.operation_id, digest_of(one.X, one.y), after=history
            )
            record.facts["entry"] = entry_facts(new)
            entries = (*entries, new)
        if (summary := self._summary(classifier, "learn")) is not None:
            parts[-1].facts["summary"] = summary
        with self._following_disk(entries[-1]):
            self._append(classifier, "learn", parts, entries, start)
        return [one.count for one in entries]

    def _replace(self, classifier: Any, one: Entry, shards: tuple[Entry, ...] = ()) -> int:
        history, shards = self.model.history, (*self.model.shards, *shards)
        if one.operation in UNLEARNING:
            history, shards = without_digests(history), without_digests(shards)
        with self._following_disk(one):
            self._write(classifier, (*history, one), shards)
        return one.count

    @contextmanager
    def _following_disk(self, one: Entry | None) -> Iterator[None]:
        """On any exception, take the model from disk, and say whether the change is there."""
        try:
            yield
        except BaseException as error:
            self._model = None  # first of all, since reading may be interrupted, too
            self._explain(error, one)

    def _explain(self, error: BaseException, one: Entry | None) -> NoReturn:
        try:
            applied = one is not None and any(e.id == one.id for e in self.model.history)
        except Exception as unreadable:
            if isinstance(unreadable, FileError) and unreadable.reason == "missing":
                raise error from None  # the folder is new, and holds no model yet
            error.add_note(
                f"{self.path}: whether the change is on disk is not known: {unreadable}; "
                "look at the history of the model before you repeat it"
            )
            raise error from None
        if one is None or not applied:
            raise error
        text = f"{self.path}: the {one.operation} of {one.count} rows is on disk"
        if one.operation != "fit":
            text += f"; do not repeat it, unless with its operation id, {one.id}, to count it once"
        if isinstance(error, OSError):
            raise AppliedError(f"{text}; what failed after it: {error}") from error
        error.add_note(text)
        raise error

    # -------------------------------------------------------------------------------------- on disk
    def _append(
        self,
        classifier: Any,
        operation: str,
        added: list[State],
        entries: tuple[Entry, ...],
        start: float,
    ) -> None:
        model, path = self.model, self.path / JOURNAL
        layout.check_links(self.path)
        mode = layout.mode_of(self.path)
        length = append(path, model.snapshot, operation, added, model.journal_bytes, mode)
        self._model = dataclasses.replace(
            model,
            classifier=classifier,
            history=(*model.history, *entries),
            pending=model.pending + len(entries),
            journal_ids=(*model.journal_ids, *(one.id for one in entries)),
            undoable=entries[-1],
            journal_bytes=length,
            replay_seconds=model.replay_seconds + perf_counter() - start,
        )

    def _compact_if_long(self) -> None:
        length, seconds = self.model.journal_bytes or 0, self.model.replay_seconds
        if length > max(MOST_BYTES, self._size()) or seconds > MOST_SECONDS:
            # What was learned is on disk all the same, and the next operation tries again.
            with suppress(OSError):
                self.compact()

    def _write(
        self, classifier: Any, history: tuple[Entry, ...], shards: tuple[Entry, ...] | None = None
    ) -> None:
        """Write a new snapshot in the place of the old one, and remove what it replaces."""
        layout.check_links(self.path)
        model, mode = self.model, layout.mode_of(self.path)
        shards = model.shards if shards is None else shards
        history, keys_file = shortened(history), classifiers.keys_file(classifier)
        keys = self.path / keys_file if keys_file else None
        new = keys is not None and not keys.exists()
        if keys is not None and new:
            layout.mark_unfinished(keys)
        state = classifiers.file_state(classifier, self.path, keys)
        if keys is not None and new:
            keys.chmod(mode)
        replaced = (*model.obsolete, *([model.keys_file] if model.keys_file else ()))
        obsolete = tuple(sorted({name for name in replaced if name != keys_file}))
        facts = {
            "history": [entry_facts(e) for e in history],
            "encoder": model.encoder,
            "encoder_fingerprint": model.encoder_fingerprint,
            "obsolete": list(obsolete),
            "summary": self._summary(classifier, history[-1].operation),
            "shards": [entry_facts(e) for e in shards],
        }
        whole = state.with_part("folder", State(facts=facts))
        digest = files.write(self.path / SNAPSHOT, "estimator", whole)
        self._model = Model(
            classifier,
            model.encoder,
            history,
            snapshot=digest,
            encoder_fingerprint=model.encoder_fingerprint,
            keys_file=keys_file,
            obsolete=obsolete,
            shards=shards,
        )
        self._clean()

    def _clean(self) -> None:
        """Remove a journal of another snapshot, and what this one made obsolete or a kill left."""
        model = self.model
        if model.journal_bytes is None:
            atomic.remove(self.path / JOURNAL)
        elif (journal := read_journal(self.path / JOURNAL)) is not None:
            drop_cut(self.path / JOURNAL, journal, layout.mode_of(self.path))
        layout.remove_leftovers(self.path, model.keys_file, model.obsolete)
        atomic.sync_folder(self.path)

    def _summary(self, classifier: Any, operation: str) -> dict[str, Any] | None:
        """What is shown of the model; None where that is not wanted, or would take long."""
        # What was fitted is solved, and so is what was learned once its accuracy is told.
        quick = operation in ("fit", "learn") or classifiers.total_count(classifier) <= QUICK_ROWS
        few = len(classifier.classes_) <= MOST_CLASSES
        return summarise(classifier) if self._with_summary and quick and few else None

    def _size(self) -> int:
        return (self.path / SNAPSHOT).stat().st_size


def _replaced_files(path: Path) -> tuple[str, ...]:
    """The files of keys of the snapshot that is about to be replaced, if it can still be read."""
    if not layout.holds_model(path):
        return ()
    try:
        return named_files(files.read(path / SNAPSHOT, "estimator").state)
    except FileError:
        return ()
