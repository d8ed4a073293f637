"""Who is still there: every process beats into a shared store, and listens for the others.

A process that waits for one that died would wait for ever, and one that computes would not notice.
So a thread in each process adds to a counter of its own and reads those of the others. One that
stays silent, or leaves word of an error, ends the job: what waits is woken by the broken
connection, and what does not wake is ended from here.
"""

from __future__ import annotations

import os
import sys
import time
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

BEAT = 1.0  # seconds
SILENCE = 25.0  # seconds after which a process counts as gone; long calls may hold up its beats
GRACE = 10.0  # seconds from then on to end in good order
BROKEN = 5.0  # seconds of silence that are enough where a connection has broken, too


_WORD = "dkvb/word"


class RankLostError(ConnectionError):
    """Another process of the job has died, hangs, or stopped with an error."""


class Watch:
    """Beats while its block runs, and knows who is missing."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        # A connection of its own: a call that waits in another one must not hold up the beat.
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank, self._size = rank, size
        self._over = Event()
        self._missing: str | None = None
        now = time.monotonic()
        self._heard = {other: (0, now) for other in range(size) if other != rank}
        self._thread = Thread(target=self._listen, daemon=True, name="dkvb-watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        if failed and not isinstance(error, RankLostError):
            self._leave_word(f"{type(error).__name__}: {error}")
        self._over.set()
        self._thread.join(GRACE)

    def who_is_missing(self) -> str:
        """What happened to whom; asked when a connection has broken."""
        for _ in range(int(2 * SILENCE / BEAT)):
            missing = self._missing or self._silent_for(BROKEN)
            if missing:
                return missing
            time.sleep(BEAT)
        return f"some process of {self._size} broke its connection to rank {self._rank}"

    def _listen(self) -> None:
        while not self._over.wait(BEAT):
            try:
                self._beat()
                self._missing = self._word() or self._silent_for(SILENCE)
            except Exception:  # whatever the store raises, it is out of reach
                self._missing = (
                    "rank 0, or the launcher, can no longer be reached: it holds what the "
                    "processes share"
                )
            if self._missing:
                self._end_soon()
                return

    def _beat(self) -> None:
        self._store.add(f"dkvb/beat/{self._rank}", 1)
        for other, (count, _) in self._heard.items():
            found = self._store.add(f"dkvb/beat/{other}", 0)
            if found != count:
                self._heard[other] = (found, time.monotonic())

    def _silent_for(self, seconds: float) -> str | None:
        now = time.monotonic()
        silent = [r for r, (_, last) in self._heard.items() if now - last > seconds]
        if not silent:
            return None
        first = min(silent, key=lambda r: self._heard[r][1])
        return (
            f"rank {first} of {self._size} died or hangs: nothing was heard of it for "
            f"{now - self._heard[first][1]:.0f} s"
        )

    def _leave_word(self, text: str) -> None:
        try:
            self._store.set(_WORD, f"rank {self._rank} of {self._size} stopped: {text}")
        except Exception:  # the store is gone, and with it the others
            return

    def _word(self) -> str | None:
        return str(self._store.get(_WORD).decode()) if self._store.check([_WORD]) else None

    def _last_word(self) -> str | None:
        """A process that fell silent may have left word meanwhile, on a busy machine."""
        try:
            return self._word()
        except Exception:  # the store is gone
            return None

    def _end_soon(self) -> None:
        """Give the main thread time to notice; it may be in a call that nothing interrupts."""
        if not self._over.wait(GRACE):
            sys.stderr.write(f"error: {self._last_word() or self._missing}\n")
            sys.stderr.flush()
            os._exit(1)
