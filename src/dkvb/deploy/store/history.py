"""What was done to a model: operation, count and time; never labels or rows."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any

from dkvb._support.files import State

MOST = 10_000  # entries that are kept as they are


@dataclass(frozen=True)
class Entry:
    """One operation that was acknowledged."""

    operation: str  # "fit", "learn", "forget", "forget_samples", "merge", "save"
    count: int  # of rows
    time: str  # UTC, ISO 8601


def entry(operation: str, count: int) -> Entry:
    """An operation that happens now."""
    return Entry(operation, count, datetime.now(UTC).isoformat(timespec="seconds"))


def shortened(history: tuple[Entry, ...], most: int = MOST) -> tuple[Entry, ...]:
    """The history with entries of one operation in a row joined in its older half, if it is long.

    >>> many = [Entry("learn", 1, str(day)) for day in range(4)]
    >>> [(e.count, e.time) for e in shortened(tuple(many), most=3)]
    [(2, '1'), (1, '2'), (1, '3')]
    """
    if len(history) <= most:
        return history
    old, recent = history[: len(history) // 2], history[len(history) // 2 :]
    joined: list[Entry] = []
    for one in old:
        if joined and joined[-1].operation == one.operation:
            joined[-1] = Entry(one.operation, joined[-1].count + one.count, one.time)
        else:
            joined.append(one)
    return (*joined, *recent)


def entry_facts(one: Entry) -> list[Any]:
    """As JSON can hold it."""
    return list(astuple(one))


def entry_from(state: State, facts: Any) -> Entry:
    """The entry that `entry_facts` wrote."""
    if not isinstance(facts, list) or [type(fact) for fact in facts] != [str, int, str]:
        raise state.damaged("history: expected an operation, a count and a time an entry")
    return Entry(*facts)
