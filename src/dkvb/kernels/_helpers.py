"""Threads that help the one that calls a compiled kernel, each on another core than the caller's.

Helpers wait between calls, since starting a thread takes as long as a small kernel. In a virtual
machine Linux may wake a thread on the core of the one that wakes it while another core sleeps, and
both then take turns on one core. Helpers are therefore kept off the core of their caller.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

_idle: list[_Helper] = []  # the last to finish is the first to be taken: its core is awake
_started: set[_Helper] = set()
_MOST = os.cpu_count() or 1  # helpers that wait


def help_with(kernel: Callable[..., None], workers: int, *arguments: Any) -> Future[None]:
    """Call kernel(*arguments) in a helper, one of so many workers; it begins at once."""
    if sys.is_finalizing():
        raise RuntimeError("the interpreter ends: its threads no longer run")
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
        _started.add(helper)
    try:
        return helper.begin(kernel, arguments, _cores(workers))
    except BaseException:
        _idle.append(helper)
        raise


def all_busy() -> bool:
    """Return whether there are at least as many helpers as cores, and all of them help."""
    return not _idle and len(_started) >= _MOST


class _Helper:
    """A thread that waits for something to do."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._cores: set[int] = set()
        self._thread = Thread(target=self._work, name="kernels", daemon=True)
        self._thread.start()

    def begin(
        self, kernel: Callable[..., None], arguments: tuple[Any, ...], cores: set[int]
    ) -> Future[None]:
        """Call kernel(*arguments) in this thread, on one of these cores; on any if there are
        none."""
        if cores != self._cores and self._thread.native_id is not None:
            with suppress(OSError):  # not permitted here
                os.sched_setaffinity(self._thread.native_id, cores)
                self._cores = cores
        future: Future[None] = Future()
        self._tasks.put((future, kernel, arguments))
        return future

    def _work(self) -> None:
        while self._help(*self._tasks.get()):
            pass

    def _help(
        self, future: Future[None], kernel: Callable[..., None], arguments: tuple[Any, ...]
    ) -> bool:
        """Call kernel(*arguments), unless that was cancelled; return whether to go on."""
        error: BaseException | None = None
        try:
            runs = future.set_running_or_notify_cancel()
            if runs:
                try:
                    kernel(*arguments)
                except BaseException as raised:
                    error = raised
            waits = self._waits()  # before the caller goes on, which may call again at once
            if runs and error is None:
                future.set_result(None)
            elif runs:
                future.set_exception(error)
            return waits
        finally:
            del future, kernel, arguments, error  # or the error's traceback would keep them

    def _waits(self) -> bool:
        """Be there for the next call; not where enough others are."""
        if len(_started) > _MOST:
            _started.discard(self)
            return False
        _idle.append(self)
        return True


def _cores(workers: int) -> set[int]:
    """The cores that the calling thread may use, but for the one it runs on; none where threads
    cannot be moved."""
    try:
        allowed = os.sched_getaffinity(0)
        # With more workers than cores, some must run where the caller does.
        return allowed - {_current_core()} if 1 < workers <= len(allowed) else allowed
    except (AttributeError, OSError):  # another system, or not permitted here
        return set()


try:
    # PyDLL holds the interpreter lock: letting it go takes longer than the call.
    _current_core: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
except (AttributeError, OSError, TypeError):  # another system, or another C library

    def _current_core() -> int:
        """No core."""
        return -1


def _forget() -> None:
    """In a forked process, which has none of these threads."""
    _idle.clear()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
