"""Work of many requests done at once: what comes in while a batch is computed is the next one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from dkvb.serve.problems import busy

# A client that was answered asks again at once, or not for long: so many seconds after the last
# request or answer, those that were answered together are no longer waited for.
_QUIET = 0.002

Part = TypeVar("Part")
Result = TypeVar("Result")


class Batcher(Generic[Part, Result]):
    """Calls `work` in a thread with all parts that wait, at most `most` items of them.

    `work` returns one result per part; an exception in place of a result fails that part alone.
    """

    def __init__(
        self,
        work: Callable[[list[Part]], Sequence[Result | Exception]],
        executor: Executor,
        *,
        most: int,
        queue: int,
        seconds: float,
        size: Callable[[Part], int] = len,  # type: ignore[assignment]
    ) -> None:
        self._work, self._executor, self._size = work, executor, size
        self._most, self._queue, self._seconds = most, queue, seconds
        self._waiting: list[tuple[Part, asyncio.Future[Result]]] = []
        # Of all requests that were not answered yet, oldest first: one timer for all of them, since
        # one for each would take longer than the rest of `submit`.
        self._deadlines: OrderedDict[asyncio.Future[Result], float] = OrderedDict()
        self._expiry: asyncio.TimerHandle | None = None
        self._expected = 1  # requests, as many as there were when the last batch was done
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self._active = 0.0  # time of the last request or answer

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, part: Part) -> Result:
        """Return the result for one part."""
        if len(self._waiting) >= self._queue:
            raise busy(f"{len(self._waiting)} requests are waiting already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((part, future))
        self._active = loop.time()
        self._deadlines[future] = self._active + self._seconds
        if self._expiry is None:
            self._expiry = loop.call_at(self._deadlines[future], self._expire, loop)
        self._begin(loop)
        try:
            return await future
        finally:
            del self._deadlines[future]
            self._active = loop.time()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer requests that have waited for too long."""
        now, self._expiry = loop.time(), None
        for future, deadline in self._deadlines.items():
            if deadline > now:
                self._expiry = loop.call_at(deadline, self._expire, loop)
                return
            if not future.done():
                future.set_exception(busy(f"no answer within {self._seconds:g} seconds", 5))

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compute what waits, unless more is about to come."""
        if self._running or not self._waiting:
            return
        if len(self._waiting) >= self._expected:
            self._next(loop)
        elif self._timer is None:
            self._timer = loop.call_later(_QUIET, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compute what waits once nothing has come or gone for a while."""
        self._timer = None
        left = self._active + _QUIET - loop.time()
        if self._running or not self._waiting:
            return
        if left > 0:
            self._timer = loop.call_later(left, self._look, loop)
        else:
            self._next(loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._take()
        self._running = bool(jobs)
        if jobs:
            done = loop.run_in_executor(self._executor, self._work, [part for part, _ in jobs])
            done.add_done_callback(lambda done: self._deliver(loop, jobs, done))

    def _take(self) -> list[tuple[Part, asyncio.Future[Result]]]:
        self._waiting = [job for job in self._waiting if not job[1].done()]  # who gave up
        n, total = 0, 0
        for part, _ in self._waiting:
            total += self._size(part)
            if n and total > self._most:
                break
            n += 1
        jobs, self._waiting = self._waiting[:n], self._waiting[n:]
        return jobs

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: list[tuple[Part, asyncio.Future[Result]]],
        done: asyncio.Future[Any],
    ) -> None:
        error = done.exception()
        results = [error] * len(jobs) if error is not None else done.result()
        for (_, future), result in zip(jobs, results, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        self._expected, self._running = len(jobs) + len(self._waiting), False
        self._begin(loop)
