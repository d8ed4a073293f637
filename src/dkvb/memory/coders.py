"""Which key a row belongs to: by keys that were fitted, or by signs of random projections."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Places = NDArray[np.int64]

BITS = 12  # projections: at most 2**BITS keys


class Coder(Protocol):
    """Frozen keys."""

    @property
    def width(self) -> int: ...
    @property
    def power(self) -> float: ...
    @property
    def fingerprint(self) -> str: ...
    def codes(self, X: F32, rows: Places) -> Places:
        """A number for the key (n,) of each of embeddings X (n, m), which are `rows` (n, m) when
        quantised."""


@dataclass(frozen=True)
class Signs:
    """The signs of random projections, fitted to nothing.

    Each projection is +1 for half of the dimensions and −1 for the others, so that what all
    dimensions have in common does not decide. Sums are of whole numbers, and exact.
    """

    width: int
    bits: int = BITS
    power: float = 0.5

    @property
    def fingerprint(self) -> str:
        return f"signs-{self.bits}-{self.width}"

    @cached_property
    def _projections(self) -> NDArray[np.float64]:
        found = np.empty((self.width, self.bits))
        for bit in range(self.bits):
            order = np.argsort(_random(bit, self.width), kind="stable")
            found[order, bit] = np.where(np.arange(self.width) % 2, -1.0, 1.0)
        return found

    def codes(self, X: F32, rows: Places) -> Places:
        sides = rows.astype(np.float64) @ self._projections > 0
        codes: Places = sides @ (1 << np.arange(self.bits, dtype=np.int64))
        return codes


def _random(stream: int, n: int) -> NDArray[np.uint64]:
    """n random numbers that are the same everywhere and for ever (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + np.uint64(stream) * np.uint64(0xD1B54A32D192ED03)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class Codebooks:
    """The nearest keys of frozen codebooks; with several, their tuple names the key."""

    keys: Any  # Keys

    @property
    def width(self) -> int:
        width: int = self.keys.width
        return width

    @property
    def power(self) -> float:
        power: float = self.keys.conditioning.power
        return power

    @property
    def fingerprint(self) -> str:
        fingerprint: str = self.keys.fingerprint
        return fingerprint

    def codes(self, X: F32, rows: Places) -> Places:
        codes = np.asarray(self.keys.codes(X)).astype(np.uint64)  # (n, C)
        if codes.shape[1] == 1:
            return codes[:, 0].astype(np.int64)
        with np.errstate(over="ignore"):
            name = np.zeros(len(codes), np.uint64)
            for column in codes.T:
                name = (name ^ column) + np.uint64(0x9E3779B97F4A7C15)
                name = (name ^ (name >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                name = (name ^ (name >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                name ^= name >> np.uint64(31)
        return (name >> np.uint64(1)).astype(np.int64)
