"""The learned examples: a multiset in canonical order.

Embeddings are kept in float16, each in units of a power of two of its own, so that no range is
lost. The order is by content hash, then class, then id: equal bits for any order, batching, split
and merge of the examples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.validation import check_memory
from dkvb.kernels.hashing import content_hash

Ids: TypeAlias = NDArray[np.object_]

_TOP = 15  # the largest number of an embedding lies in [2**14, 2**15) in its own unit
CHUNK = 8192
HASHED = 512  # rows at a time: hashing takes some 40 bytes for each number


@dataclass(frozen=True, eq=False)
class Examples:
    """Embeddings, classes and ids of n examples."""

    halves: Tensor  # (n, m) float16
    exponents: Tensor  # (n,) int16: an embedding is halves · 2**exponents
    targets: Tensor  # (n,) int64: index among the sorted labels
    hashes: Tensor  # (n,) int64
    ids: Ids | None = None  # (n,) of int, str or None

    @classmethod
    def of(cls, X: Tensor, targets: Tensor, ids: Ids | None = None) -> Examples:
        """Examples from embeddings (n, m) float32, in canonical order."""
        parts = [_kept(part) for part in X.split(HASHED)]
        halves, exponents, hashes = (torch.cat(column) for column in zip(*parts, strict=True))
        return cls(halves, exponents, targets, hashes, ids).reordered()

    @classmethod
    def read(
        cls, halves: Tensor, exponents: Tensor, targets: Tensor, ids: Ids | None
    ) -> Examples | None:
        """Examples from what a file holds; None where they are not what `of` would have kept."""
        hashes = [torch.zeros(0, dtype=torch.int64)]
        for part, units in zip(halves.split(HASHED), exponents.split(HASHED), strict=True):
            x = _embeddings(part, units)
            again, same_units, found = _kept(x)
            same = torch.equal(again, part) and torch.equal(same_units, units)
            if not bool(x.isfinite().all()) or not same:
                return None
            hashes.append(found)
        examples = cls(halves, exponents, targets, torch.cat(hashes), ids)
        order = examples.reordered()
        canonical = torch.equal(order.hashes, examples.hashes)
        canonical = canonical and torch.equal(order.targets, targets)
        same_ids = ids is None or (order.ids is not None and order.ids.tolist() == ids.tolist())
        return examples if canonical and same_ids else None

    def __len__(self) -> int:
        return len(self.targets)

    def embeddings(self, which: Tensor | slice = slice(None)) -> Tensor:
        """The embeddings (n, m) float32, or some of them."""
        return _embeddings(self.halves[which], self.exponents[which])

    def class_counts(self, n_classes: int) -> Tensor:
        """Examples per class (Y,)."""
        return torch.bincount(self.targets, minlength=n_classes)

    def union(self, other: Examples) -> Examples:
        """These examples and others; what is in both counts twice."""
        ids = None
        if self.ids is not None or other.ids is not None:
            ids = np.concatenate([_ids(self), _ids(other)])
        return Examples(
            torch.cat([self.halves, other.halves]),
            torch.cat([self.exponents, other.exponents]),
            torch.cat([self.targets, other.targets]),
            torch.cat([self.hashes, other.hashes]),
            ids,
        ).reordered()

    def take(self, which: Tensor) -> Examples:
        """Some of the examples, by position or mask; their order stays canonical."""
        ids = None if self.ids is None else self.ids[which.numpy()]
        if ids is not None and all(own is None for own in ids):
            ids = None
        return Examples(
            self.halves[which],
            self.exponents[which],
            self.targets[which],
            self.hashes[which],
            ids,
        )

    def with_targets(self, table: Tensor) -> Examples:
        """The same examples where class i is called table[i], in the same order of classes."""
        return replace(self, targets=table[self.targets])

    def positions(self, others: Examples) -> Tensor:
        """Where each of some examples (n,) stands among these, copies one after another.

        −1 where an example was not learned, or not that often. Ids do not matter here.
        """
        near = torch.isin(self.hashes, others.hashes).nonzero()[:, 0]
        places: dict[tuple[int, int], list[int]] = {}
        for place in near.flip(0).tolist():
            key = int(self.hashes[place]), int(self.targets[place])
            places.setdefault(key, []).append(place)
        asked = zip(others.hashes.tolist(), others.targets.tolist(), strict=True)
        found = [places[key].pop() if places.get(key) else -1 for key in asked]
        return torch.tensor(found, dtype=torch.int64)

    def reordered(self) -> Examples:
        """The same examples in canonical order."""
        order = np.lexsort((self.targets.numpy(), self.hashes.numpy()))
        ordered = self.take(torch.from_numpy(order))
        ids = ordered.ids
        if ids is None:
            return ordered
        tie = (ordered.hashes[1:] == ordered.hashes[:-1]) & (
            ordered.targets[1:] == ordered.targets[:-1]
        )
        if not bool(tie.any()):
            return ordered
        group = torch.nn.functional.pad((~tie).cumsum(0), (1, 0)).tolist()
        places = sorted(range(len(group)), key=lambda i: (group[i], _id_key(ids[i])))
        return ordered.take(torch.tensor(places))


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct embeddings among examples: copies are one row with a weight."""

    first: Tensor  # (N,) position of the first copy
    row: Tensor  # (n,) which of the N an example is
    hashes: Tensor  # (N,)
    weights: Tensor  # (N,) float64, number of copies
    targets: Tensor  # (N, Y) float64, share of the copies that have each class


def distinct(examples: Examples, n_classes: int) -> Distinct:
    """The distinct embeddings, ordered by hash."""
    hashes, row, counts = torch.unique_consecutive(
        examples.hashes, return_inverse=True, return_counts=True
    )
    check_memory(
        f"targets of {len(hashes)} examples in {n_classes} classes",
        40 * len(hashes) * n_classes,  # targets, values, and what leaving one out predicts
        "learn fewer classes in one model, or use a BottleneckClassifier",
    )
    targets = torch.zeros((len(hashes), n_classes), dtype=torch.float64)
    targets.index_put_((row, examples.targets), torch.ones(1, dtype=torch.float64), accumulate=True)
    first = torch.nn.functional.pad(counts.cumsum(0), (1, 0))[:-1]
    weights = counts.double()
    return Distinct(first, row, hashes, weights, targets / weights[:, None])


def content_hashes(X: Tensor) -> Tensor:
    """The hash of each embedding (n, m) float32, as it is kept."""
    return torch.cat([_kept(part)[2] for part in X.split(HASHED)])


def _kept(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings as float16 numbers, each row in units of a power of two; and their hashes."""
    largest = X.abs().amax(dim=1)
    exponents = torch.frexp(largest).exponent - _TOP
    exponents = torch.where(largest > 0, exponents, 0)
    # In float64, so that neither the unit nor the quotient leaves the range of numbers.
    halves = torch.ldexp(X.double(), -exponents[:, None]).half()
    # Rounding may lift the largest number to the next power of two, whose unit is the next one:
    # what is read back must be quantised to the same bits.
    exponents = (exponents + (halves.abs().amax(dim=1) >= 2.0**_TOP)).short()
    halves = torch.ldexp(X.double(), -exponents[:, None]).half()
    return halves, exponents, content_hash(_embeddings(halves, exponents))


def _embeddings(halves: Tensor, exponents: Tensor) -> Tensor:
    # The largest float32 numbers are rounded to more than any float32 is.
    largest = torch.finfo(torch.float32).max
    return torch.ldexp(halves.double(), exponents[:, None]).clamp(-largest, largest).float()


def _ids(examples: Examples) -> Ids:
    return np.full(len(examples), None) if examples.ids is None else examples.ids


def _id_key(one: Any) -> tuple[int, int, str]:
    if one is None:
        return 0, 0, ""
    return (2, 0, one) if isinstance(one, str) else (1, int(one), "")


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


def object_array(names: list[Any]) -> NDArray[np.object_]:
    """Names of any kind (n,) in an array."""
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array
