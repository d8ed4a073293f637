"""The one writer: changes are made one after another, and answered once they are on disk.

Requests to learn that wait together are learned together, with one wait for the disk.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from secrets import token_hex
from threading import Lock

from dkvb.serve.problems import busy
from dkvb.store import Learnable, Model, ModelFolder, RepeatedIdError
from dkvb.store.history import check_id

_MOST_CONTENTS = 10_000  # as many as a history keeps ids
_MOST_TOGETHER = 64


@dataclass(frozen=True)
class Acknowledgement:
    """An operation that is on disk."""

    operation: str
    count: int  # of rows
    sequence: int
    operation_id: str
    repeated: bool  # whether it was on disk before this request


@dataclass(frozen=True)
class Change:
    """A change that is asked for.

    `call` makes it, given the operation's id, and returns its number of rows; for a `learn`, it
    returns what to learn. `content` says what was asked for: an id that is repeated with another
    one is refused. `after` is called once the change is on disk, before the next one.
    """

    operation: str
    call: Callable[[str], int] | None = None
    learn: Callable[[str], Learnable] | None = None
    content: str = ""
    after: Callable[[], None] | None = None


@dataclass(frozen=True)
class _Job:
    change: Change
    name: str
    future: asyncio.Future[Acknowledgement]
    loop: asyncio.AbstractEventLoop

    def answer(self, result: Acknowledgement | BaseException) -> None:
        self.loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: Acknowledgement | BaseException) -> None:
        if self.future.done():
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class Writer:
    """A model folder that this process changes."""

    def __init__(self, folder: ModelFolder, queue: int, seconds: float) -> None:
        self.folder, self.model = folder, folder.model
        self._queue, self._seconds = queue, seconds
        self._jobs: deque[_Job] = deque()
        self._running, self._lock = False, Lock()
        self._thread = ThreadPoolExecutor(1, "writer")
        self._contents: OrderedDict[str, bytes] = OrderedDict()

    async def make(self, change: Change, operation_id: str | None) -> Acknowledgement:
        """Return once a change is on disk."""
        if len(self._jobs) >= self._queue:
            raise busy(f"{len(self._jobs)} changes are waiting already")
        check_id(operation_id)
        loop = asyncio.get_running_loop()
        job = _Job(change, operation_id or token_hex(8), loop.create_future(), loop)
        with self._lock:
            self._jobs.append(job)
            if not self._running:
                self._running = True
                self._thread.submit(self._work)
        try:
            return await asyncio.wait_for(asyncio.shield(job.future), self._seconds)
        except TimeoutError:
            with self._lock:
                if job in self._jobs:
                    self._jobs.remove(job)
                    raise busy("too many changes are waiting", 5) from None
            raise busy(
                f"the {change.operation} takes longer than {self._seconds:g} seconds, and may "
                "still be made; repeat it with the same Idempotency-Key to count it once",
                5,
            ) from None

    def close(self) -> None:
        """Finish what was begun, and let others write."""
        self._thread.shutdown()
        self.folder.close()

    def __len__(self) -> int:
        return len(self._jobs)

    # ---------------------------------------------------------------------------- in its own thread
    def _work(self) -> None:
        """Make changes until none waits."""
        while True:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return
                jobs = [self._jobs.popleft()]
                while jobs[0].change.learn and self._jobs and len(jobs) < _MOST_TOGETHER:
                    if not self._jobs[0].change.learn:
                        break
                    jobs.append(self._jobs.popleft())
            try:
                self._make(jobs)
            except BaseException as error:
                for job in jobs:
                    job.answer(error)

    def _make(self, jobs: list[_Job]) -> None:
        """Make one change, or learn for several requests."""
        ready: list[tuple[_Job, bool, Learnable | None]] = []
        for job in jobs:
            try:
                self._check_content(job)
                repeated = self.folder.is_done(job.change.operation, job.name)
                batch = None if job.change.learn is None else job.change.learn(job.name)
                ready.append((job, repeated, batch))
            except Exception as error:
                job.answer(error)
        for (job, repeated, _), found in zip(ready, self._counts(ready), strict=True):
            if isinstance(found, Exception):
                job.answer(found)
                continue
            self._remember(job)
            if job.change.after is not None:
                job.change.after()
            sequence = sequence_of(self.model, job.name)
            done = Acknowledgement(job.change.operation, found, sequence, job.name, repeated)
            job.answer(done)

    def _counts(self, ready: list[tuple[_Job, bool, Learnable | None]]) -> list[int | Exception]:
        batches = [batch for _, _, batch in ready if batch is not None]
        try:
            if batches:
                return self.folder.learn_many(batches)
            return [job.change.call(job.name) for job, _, _ in ready if job.change.call]
        except Exception as error:
            return [error] * len(ready)
        finally:
            self.model = self.folder.model  # what is on disk, also after an error

    def _check_content(self, job: _Job) -> None:
        if self._contents.get(job.name, _digest(job)) != _digest(job):
            raise RepeatedIdError(
                f"Idempotency-Key: expected one that no other request has; got {job.name!r}, which "
                "a request with other content had; send another key"
            )

    def _remember(self, job: _Job) -> None:
        self._contents[job.name] = _digest(job)
        if len(self._contents) > _MOST_CONTENTS:
            self._contents.popitem(last=False)


def _digest(job: _Job) -> bytes:
    text = f"{job.change.operation} {job.change.content}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def sequence_of(model: Model, operation_id: str) -> int:
    """Return the sequence number of an operation."""
    found = (one for one in reversed(model.history) if one.id == operation_id)
    return next(found).sequence or 0
