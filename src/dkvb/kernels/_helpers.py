"""Threads that help the one that calls a compiled kernel, each on another core than the caller's.

Helpers wait between calls, since starting a thread takes as long as a small kernel. In a virtual
machine Linux often wakes a thread on the core of the one that wakes it while another core sleeps,
and both then take turns on one core. Helpers are therefore kept off the core of their caller.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

_idle: list[_Helper] = []  # the last to finish is the first to be taken: its core is awake
_started: list[_Helper] = []


def help_with(kernel: Callable[..., None], *arguments: Any) -> Future[None]:
    """Call kernel(*arguments) in a helper; it begins at once, or after the helper's last call."""
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
        _started.append(helper)
    return helper.begin(kernel, arguments)


def all_busy() -> bool:
    """Return whether there are as many helpers as cores, and all of them help."""
    return not _idle and len(_started) >= (os.cpu_count() or 1)


class _Helper:
    """A thread that waits for something to do."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._cores: set[int] = set()
        self._thread = Thread(target=self._work, name="kernels", daemon=True)
        self._thread.start()

    def begin(self, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> Future[None]:
        """Call kernel(*arguments) in this thread."""
        cores = _other_cores()
        if cores != self._cores:
            with suppress(OSError):  # not permitted here
                os.sched_setaffinity(self._thread.native_id or 0, cores)
                self._cores = cores
        future: Future[None] = Future()
        self._tasks.put((future, kernel, arguments))
        return future

    def _work(self) -> None:
        while True:
            self._help(*self._tasks.get())

    def _help(
        self, future: Future[None], kernel: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        error = None
        if future.set_running_or_notify_cancel():
            try:
                kernel(*arguments)
            except BaseException as raised:
                error = raised
            # Before its caller goes on, which may call again at once.
            _idle.append(self)
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        else:
            _idle.append(self)


if hasattr(os, "sched_setaffinity"):
    _current_core: Callable[[], int] = ctypes.CDLL(None).sched_getcpu

    def _other_cores() -> set[int]:
        """The cores that the calling thread may use, but for the one it runs on."""
        allowed = os.sched_getaffinity(0)
        return allowed - {_current_core()} or allowed

else:  # threads cannot be assigned to cores on this system

    def _other_cores() -> set[int]:
        """No cores: helpers run anywhere."""
        return set()


def _forget() -> None:
    """In a forked process, which has none of these threads."""
    _idle.clear()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
