"""Predictions that a later request may name, in memory only: bounded, and forgotten in time."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.serve.problems import Problem

MOST_BYTES = 16 << 20
MOST_ROWS = 4096
SECONDS = 3600.0
RECENT = 100  # predictions in the running accuracy
CURVE = 500  # points of the curve


@dataclass(frozen=True)
class Prediction:
    """What was predicted for a row, and the row itself."""

    row: NDArray[np.float32]  # (m,)
    label: Any
    expires: float
    thumbnail: bytes | None = None

    @property
    def n_bytes(self) -> int:
        return self.row.nbytes + len(self.thumbnail or b"") + 200


class Remembered:
    """Predictions by id, the oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Prediction] = OrderedDict()
        self._bytes, self._lock = 0, Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, row: NDArray[np.float32], label: Any, thumbnail: bytes | None = None) -> str:
        """Remember a prediction for an hour, or until there are too many; return its id."""
        name, kept = token_urlsafe(12), row.astype(np.float32, copy=True)
        with self._lock:
            one = Prediction(kept, label, time.monotonic() + SECONDS, thumbnail)
            self._kept[name] = one
            self._bytes += one.n_bytes
            while self._bytes > MOST_BYTES or len(self._kept) > MOST_ROWS or self._has_expired():
                self._bytes -= self._kept.popitem(last=False)[1].n_bytes
        return name

    def get(self, names: list[str]) -> list[Prediction]:
        """Return predictions; an error where one is not remembered any more."""
        now = time.monotonic()
        with self._lock:
            found = [self._kept.get(name) for name in names]
        missing = [
            n for n, one in zip(names, found, strict=True) if one is None or one.expires < now
        ]
        if missing:
            raise Problem(
                404,
                "prediction_ids: expected ids of predictions of the last hour; "
                f"{missing[0][:60]!r} is not remembered; send the rows themselves",
            )
        return [one for one in found if one is not None]

    def update(self, names: list[str], labels: list[Any]) -> None:
        """Remember other labels for predictions that are still there."""
        with self._lock:
            for name, label in zip(names, labels, strict=True):
                if name in self._kept:
                    self._kept[name] = replace(self._kept[name], label=label)

    def drop(self, names: list[str]) -> None:
        """Forget predictions that were learned."""
        with self._lock:
            for name in names:
                one = self._kept.pop(name, None)
                self._bytes -= 0 if one is None else one.n_bytes

    def clear(self) -> None:
        """Forget all: something was unlearned, and they may be of it."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def all(self) -> tuple[list[str], NDArray[np.float32]]:
        """Return the ids of all, and their rows (n, m)."""
        now = time.monotonic()
        with self._lock:
            kept = [(name, one.row) for name, one in self._kept.items() if one.expires >= now]
        rows = np.stack([row for _, row in kept]) if kept else np.zeros((0, 0), np.float32)
        return [name for name, _ in kept], rows

    def _has_expired(self) -> bool:
        return bool(self._kept) and next(iter(self._kept.values())).expires < time.monotonic()


@dataclass
class Prequential:
    """Running accuracy: each row is scored by the prediction made before it was learned."""

    scored: int = 0
    correct: int = 0
    _recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    _curve: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=CURVE))

    def add(self, predicted: list[Any], labels: list[Any]) -> None:
        """Score predictions by the labels that were learned."""
        for one, label in zip(predicted, labels, strict=True):
            self.scored += 1
            self.correct += one == label
            self._recent.append(one == label)
            self._curve.append((self.scored, sum(self._recent) / len(self._recent)))

    def facts(self) -> dict[str, Any]:
        """Return what there is to tell."""
        return {
            "scored": self.scored,
            "accuracy": self.correct / self.scored if self.scored else None,
            "recent_accuracy": self._curve[-1][1] if self._curve else None,
            "recent_rows": RECENT,
            "curve": [{"scored": n, "accuracy": accuracy} for n, accuracy in self._curve],
        }
