"""The memory of examples: every one that was learned, as a multiset.

Embeddings are kept in float16, each in units of a power of two of its own, so that no range is
lost. Rows stand in the order in which they came; whatever depends on an order takes the canonical
one (by content hash, then target, then id), so that equal sets have equal bits and equal answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dkvb._support.hashing import content_hash
from dkvb.memory.blocks import Blocks
from dkvb.memory.conditioning import Conditioning, Moments, units

Ids: TypeAlias = NDArray[np.object_]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

_TOP = 15  # the largest number of an embedding lies in [2**14, 2**15) in its own unit
_WIDE = 100  # exponents beyond which float32 cannot hold what lies between
CHUNK = 4096
HASHED = 512  # rows at a time: hashing takes some 40 bytes for each number


@dataclass(frozen=True, eq=False)
class Examples:
    """Embeddings, targets and ids of n examples; each is an entry of one row."""

    halves: Blocks  # (n, m) float16
    exponents: NDArray[np.int16]  # (n,): an embedding is halves · 2**exponents
    targets: Places  # (n,) index into what the state says of targets
    hashes: Places  # (n,)
    ids: Ids | None = None  # (n,) of int, str or None

    keeps_rows = True

    @classmethod
    def empty(cls, width: int) -> Examples:
        """No example of embeddings of this width."""
        none = np.zeros(0, np.int64)
        halves = Blocks.of(np.zeros((0, width), np.float16))
        return cls(halves, np.zeros(0, np.int16), none, none)

    @classmethod
    def of(cls, X: F32, targets: Places, ids: Ids | None = None) -> Examples:
        """Examples from embeddings (n, m) float32."""
        halves, exponents, hashes = kept(X)
        return cls(Blocks.of(halves), exponents, targets, hashes, ids)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def width(self) -> int:
        return self.halves.width

    @property
    def counts(self) -> Places:
        """How many rows each entry stands for (n,)."""
        return np.ones(len(self), np.int64)

    @property
    def n_rows(self) -> int:
        return len(self)

    @property
    def power(self) -> float:
        """Of the conditioning: the root, unless a number of any embedding is below zero."""
        for _, part in self.halves:
            bits = part.view(np.int16)  # of negative numbers the sign bit is set, and others
            if bool(((bits < 0) & (bits > np.iinfo(np.int16).min)).any()):
                return 1.0
        return 0.5

    @property
    def finite(self) -> bool:
        """Whether no number is NaN or infinite: exponents of float16 that are all ones."""
        exponent = np.int16(0x7C00)
        return not any(
            bool(((part.view(np.int16) & exponent) == exponent).any()) for _, part in self.halves
        )

    def embeddings(self, which: Places) -> F32:
        """Some of the embeddings (k, m)."""
        return _embeddings(self.halves[which], self.exponents[which])

    def moments(self) -> Moments:
        """Sums over all examples; outer products where these are more than dimensions."""
        width, power = self.width, self.power
        found = Moments(power, len(self), np.zeros(width), np.zeros(width), None)
        if len(self) > width:
            found.moment = np.zeros((width, width))
        for start in range(0, len(self), CHUNK):
            x = self.embeddings(self.order[start : start + CHUNK])
            rows = units(x, power)
            found.total += rows.sum(axis=0, dtype=np.float64)
            assert found.raw is not None
            found.raw += x.sum(axis=0, dtype=np.float64)
            if found.moment is not None:
                found.moment += rows.T @ rows
        return found

    def units(self, which: Places, by: Conditioning) -> tuple[Any, F64]:
        """Rows (k, m) before centring, and how far (k,) what each stands for spreads around it."""
        return by.units(self.embeddings(which)), np.zeros(len(which))

    @cached_property
    def order(self) -> Places:
        """The canonical order (n,)."""
        order = np.lexsort((self.targets, self.hashes))
        if self.ids is None or len(order) < 2:
            return order
        hashes, targets = self.hashes[order], self.targets[order]
        tie = (hashes[1:] == hashes[:-1]) & (targets[1:] == targets[:-1])
        if not tie.any():
            return order
        group = np.concatenate([[0], np.cumsum(~tie)])
        ids = self.ids[order]
        places = sorted(range(len(order)), key=lambda i: (group[i], _id_key(ids[i])))
        return order[places]

    def canonical(self) -> Examples:
        """The same examples in canonical order."""
        order = self.order
        if (order == np.arange(len(order))).all():
            return self
        halves = Blocks.of(self.halves[order])
        ids = None if self.ids is None else self.ids[order]
        return Examples(halves, self.exponents[order], self.targets[order], self.hashes[order], ids)

    def appended(self, other: Examples) -> Examples:
        """These examples and others after them; what is in both counts twice."""
        ids = None
        if self.ids is not None or other.ids is not None:
            ids = np.concatenate([_ids(self), _ids(other)])
        return Examples(
            self.halves.followed_by(other.halves),
            np.concatenate([self.exponents, other.exponents]),
            np.concatenate([self.targets, other.targets]),
            np.concatenate([self.hashes, other.hashes]),
            ids,
        )

    def kept(self, mask: NDArray[np.bool_]) -> Examples:
        """Only the examples where a mask (n,) is true."""
        ids = None if self.ids is None else self.ids[mask]
        if ids is not None and all(own is None for own in ids):
            ids = None
        return Examples(
            self.halves.kept(mask),
            self.exponents[mask],
            self.targets[mask],
            self.hashes[mask],
            ids,
        )

    def with_targets(self, targets: Places) -> Examples:
        """The same examples with other targets (n,)."""
        return replace(self, targets=targets)

    def positions(self, hashes: Places, targets: Places) -> Places:
        """Where each of some examples (k,) stands among these, copies one after another in
        canonical order.

        −1 where an example was not learned, or not that often. Ids do not matter here.
        """
        near = np.nonzero(np.isin(self.hashes, hashes))[0]
        if self.ids is not None and len(near) > 1:  # of copies the one with the lowest id goes
            near = np.array(sorted(near, key=lambda place: _id_key(self.ids[place])))  # type: ignore[index]
        places: dict[tuple[int, int], list[int]] = {}
        for place in near[::-1].tolist():
            key = int(self.hashes[place]), int(self.targets[place])
            places.setdefault(key, []).append(place)
        asked = zip(hashes.tolist(), targets.tolist(), strict=True)
        found = [places[key].pop() if places.get(key) else -1 for key in asked]
        return np.array(found, dtype=np.int64)

    def of_ids(self, ids: list[Any]) -> Places:
        """Positions of the examples that have these ids."""
        known = [] if self.ids is None else self.ids.tolist()
        wanted = set(ids)
        missing = wanted - set(known)
        if missing:
            raise ValueError(
                f"ids: expected those of learned examples; got {sorted(map(str, missing))[:5]}; "
                "nothing was changed"
            )
        places = [place for place, own in enumerate(known) if own in wanted and own is not None]
        return np.array(places, dtype=np.int64)


def kept(X: F32) -> tuple[NDArray[np.float16], NDArray[np.int16], Places]:
    """Embeddings (n, m) as they are kept: float16 numbers, each row in units of a power of two, the
    exponents of these (n,), and the hash of each row (n,)."""
    n = len(X)
    halves = np.empty(X.shape, np.float16)
    exponents, hashes = np.empty(n, np.int16), np.empty(n, np.int64)
    for start in range(0, n, HASHED):
        part = slice(start, start + HASHED)
        halves[part], exponents[part], hashes[part] = _kept(X[part])
    return halves, exponents, hashes


def _kept(X: F32) -> tuple[NDArray[np.float16], NDArray[np.int16], Places]:
    largest = np.abs(X).max(axis=1)
    exponents = np.where(largest > 0, np.frexp(largest)[1] - _TOP, 0)
    # In float64, so that neither the unit nor the quotient leaves the range of numbers.
    wide = X.astype(np.float64)
    halves = (wide * np.ldexp(1.0, -exponents)[:, None]).astype(np.float16)
    # Rounding may lift the largest number to the next power of two, whose unit is the next one:
    # what is read back must be quantised to the same bits.
    lifted = np.abs(halves).max(axis=1) >= 2.0**_TOP
    if lifted.any():
        exponents = exponents + lifted
        halves = (wide * np.ldexp(1.0, -exponents)[:, None]).astype(np.float16)
    exponents = exponents.astype(np.int16)
    return halves, exponents, content_hash(_embeddings(halves, exponents))


def _embeddings(halves: NDArray[np.float16], exponents: NDArray[np.int16]) -> F32:
    if len(exponents) and np.abs(exponents).max() < _WIDE:
        return halves.astype(np.float32) * np.ldexp(np.float32(1), exponents)[:, None]
    # The largest float32 numbers are rounded to more than any float32 is.
    largest = np.finfo(np.float32).max
    with np.errstate(over="ignore", invalid="ignore"):
        wide = halves.astype(np.float64) * np.ldexp(1.0, exponents.astype(np.int64))[:, None]
    return np.clip(wide, -largest, largest).astype(np.float32)


def _ids(examples: Examples) -> Ids:
    if examples.ids is not None:
        return examples.ids
    return np.full(len(examples), None, dtype=object)


def _id_key(own: Any) -> tuple[int, Any]:
    """Sorts none first, then integers, then strings."""
    return (0, 0) if own is None else (1, own) if isinstance(own, int) else (2, own)


def checked_ids(ids: Any, n: int | None) -> list[Any]:
    """Ids as strings, integers or None."""
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    if n is not None and len(listed) != n:
        raise ValueError(f"ids: expected {n}, one for each row of X; got {len(listed)}")
    alien = next(
        (i for i in listed if i is not None and (isinstance(i, bool) or type(i) not in (int, str))),
        None,
    )
    if alien is not None:
        raise TypeError(f"ids: expected strings or integers; got {alien!r}")
    return listed


def object_array(names: list[Any]) -> Ids:
    """Names of any kind (n,) in an array."""
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array
