"""Why a collective failed: a process that stops with an error leaves a message for the others.

A process that dies is reported by the launcher (torchrun names the rank and ends the others), one
that hangs by the backend's timeout. Neither knows the error message of a process that raised, and
without a launcher nobody ends those that wait: their connection breaks, and they ask here.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

_KEY = "dkvb/failure"
_WAIT = timedelta(seconds=5)  # for a message of a process that is about to leave one


class RankLostError(ConnectionError):
    """Another process of the group has died, hangs, or stopped with an error."""


def leave_message(store: Any, rank: int, size: int, error: BaseException) -> None:
    """Tell the other processes which error ends this one."""
    with suppress(Exception):  # whatever the store raises, it is out of reach
        store.set(_KEY, f"rank {rank} of {size} stopped: {type(error).__name__}: {error}")


def why(store: Any, rank: int, size: int, error: BaseException) -> str:
    """Why a collective failed in this process, as far as it can be known."""
    try:
        store.wait([_KEY], _WAIT)
        return str(store.get(_KEY).decode())
    except Exception:  # no message, or the store went with the process that holds it
        reason = " ".join(str(error).split())[:200]
        return (
            f"another process of {size} died, hangs or lost its connection to rank {rank} "
            f"({reason}); the launcher's report names it"
        )
