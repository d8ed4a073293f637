"""Unlabelled rows for key initialisation, from an array or from batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dkvb._support import validation
from dkvb.bottleneck.rows import as_tensor, chunks
from dkvb.kernels.hashing import content_hash

HELD_OUT_EVERY = 10  # one row in ten, picked by its content, measures the keys and fits none
HELD_OUT_MOST = 2000
BATCHES_PER_EPOCH = 8  # of moving averages, at least
CHUNK_ROWS = 2048
GROUP_BYTES = {
    "cpu": 1 << 24,
    "cuda": 1 << 32,
}  # heads of a group of codebooks, kept for all epochs


Heads = Callable[[Tensor], Tensor]


class Rows(Protocol):
    """What key initialisation needs of its data."""

    at_least: int  # rows to fit keys from: exact below the number asked for
    positions: int  # h·w of spatial maps, else 1
    repeats: bool  # whether every pass sees all rows

    def sample(self) -> Iterator[Tensor]: ...
    def mapped(self, change: Callable[[Tensor], Tensor]) -> Rows: ...
    def held_out(self) -> Tensor: ...
    def groups(self, n_codebooks: int, key_dim: int) -> list[slice]: ...
    def batch_rows(self, batch_size: int) -> int:
        """How many rows moving averages take at a time."""

    def passes(self, heads_of: Heads) -> Iterator[Iterator[Tensor]]:
        """Yield, for each pass, the heads of the rows, batch by batch."""


def rows_of(X: Any, *, at_least: int, passes: int, batch_size: int, device: torch.device) -> Rows:
    """Wrap an array (n, m) or (n, h, w, m), or an iterable of such batches, which pass in batches
    of `batch_size` whatever their own size. Batches of a `DataLoader` may be (embeddings, labels).
    """
    if hasattr(X, "shape") or (isinstance(X, list) and X and np.ndim(X[0]) == 1):
        return _ArrayRows(X, device)
    if not hasattr(X, "__iter__"):
        raise TypeError(f"X: expected an array or an iterable of batches; got {type(X).__name__}")
    if passes > 1 and isinstance(X, Iterator):
        raise ValueError(
            f"X: expected batches that can be iterated {passes} times; got a one-time iterator; "
            "pass a list or an object whose __iter__ starts anew, or epochs=1"
        )
    return _StreamRows(X, at_least, batch_size, device)


def _embeddings(batch: Any) -> Any:
    """The embeddings of a batch, which a `DataLoader` may give together with labels."""
    with_others = isinstance(batch, tuple | list) and len(batch) and np.ndim(batch[0]) in (2, 4)
    return batch[0] if with_others else batch


def _flat(X: Any) -> tuple[Any, int]:
    """Rows (n·h·w, m) and the number of positions h·w."""
    if not isinstance(X, np.ndarray | Tensor):
        X = np.asarray(X)
    if X.ndim == 4:
        n, h, w, m = X.shape
        return X.reshape(n * h * w, m), h * w
    return validation.rows(X), 1


def _held(x: Tensor) -> Tensor:
    return content_hash(x) % HELD_OUT_EVERY == 0


def subsample(X: Any, most: int = 1 << 17) -> Any:
    """At most so many rows of X (n, m), chosen by their content: the same in any order."""
    if len(X) <= most:
        return X
    hashes = torch.empty(len(X), dtype=torch.int64)  # small pieces would fragment the heap
    for part, x in chunks(X, CHUNK_ROWS):
        hashes[part] = content_hash(x)
    rows = torch.sort(torch.argsort(hashes, stable=True)[:most]).values
    return X[rows if isinstance(X, Tensor) else rows.numpy()]


class _ArrayRows:
    repeats = True

    def __init__(self, X: Any, device: torch.device) -> None:
        flat, self.positions = _flat(X)
        self._X, self._device = validation.rows(flat), device
        self._held = torch.cat([_held(x) for _, x in self._chunks()])
        n, n_held = len(self._held), int(self._held.sum())
        self._spare = 0 < n_held < n  # else too few rows to spare any
        if not self._spare:
            self._held[:] = False
        self.at_least = n - n_held if self._spare else n
        self._n_rows = n

    def _chunks(self) -> Iterator[tuple[slice, Tensor]]:
        return chunks(self._X, CHUNK_ROWS, "X", self._device)

    def sample(self) -> Iterator[Tensor]:
        """The rows that fit, batch by batch."""
        return (x[~self._held[part]] for part, x in self._chunks())

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """The same rows, changed once and kept; held out are those that were."""
        twin = copy(self)
        twin._X = torch.cat([change(x) for _, x in self._chunks()])
        return twin

    def held_out(self) -> Tensor:
        chosen = self._held if self._spare else ~self._held
        rows = torch.nonzero(chosen)[:HELD_OUT_MOST, 0]
        at = rows.to(self._X.device) if isinstance(self._X, Tensor) else rows.cpu().numpy()
        picked = self._X[at]
        return as_tensor(picked).to(self._device)

    def groups(self, n_codebooks: int, key_dim: int) -> list[slice]:
        budget = GROUP_BYTES.get(self._device.type, GROUP_BYTES["cpu"])
        # Two at least, so that two cores have work.
        size = max(2, budget // (4 * self._n_rows * key_dim))
        return [slice(i, min(i + size, n_codebooks)) for i in range(0, n_codebooks, size)]

    def batch_rows(self, batch_size: int) -> int:
        # Several batches per epoch, or averages would hardly leave the rows that they start from.
        return max(1, min(batch_size * self.positions, self.at_least // BATCHES_PER_EPOCH))

    def passes(self, heads_of: Heads) -> Iterator[Iterator[Tensor]]:
        heads = torch.cat([heads_of(x[~self._held[part]]) for part, x in self._chunks()])
        while True:
            yield iter([heads])


class _StreamRows:
    def __init__(self, batches: Any, at_least: int, batch_size: int, device: torch.device) -> None:
        self._batches, self._device = batches, device
        self.repeats = not isinstance(batches, Iterator)
        self._change: Callable[[Tensor], Tensor] = lambda x: x
        self._rest = iter(batches)
        self._begun: list[Tensor] = []  # read until there are as many rows as keys
        self._spare = True
        self.positions = 1
        for batch in self._rest:
            flat, self.positions = _flat(_embeddings(batch))
            self._begun.append(self._checked(flat))
            self._batch_rows = batch_size * self.positions
            # Whole batches: drawing the first keys from these must not read on.
            if self._n_fitting() >= -(-at_least // self._batch_rows) * self._batch_rows:
                break
        if not self._begun:
            raise ValueError("X: expected at least one batch; got an empty iterable")
        if self._n_fitting() == 0:  # too few rows to spare any
            self._spare = False
        self.at_least = self._n_fitting()

    def _checked(self, flat: Any) -> Tensor:
        width = self._begun[0].shape[1] if self._begun else None
        return as_tensor(validation.rows(flat, "X", width)).to(self._device)

    def _fitting(self, x: Tensor) -> Tensor:
        return x[~_held(x)] if self._spare else x

    def _n_fitting(self) -> int:
        return sum(len(self._fitting(x)) for x in self._begun)

    def sample(self) -> Iterator[Tensor]:
        """What was read first: it stands for the rest."""
        return (self._fitting(x) for x in self._begun)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """The same rows, changed whenever they pass."""
        twin = copy(self)
        twin._change = change
        return twin

    def held_out(self) -> Tensor:
        begun = torch.cat(self._begun)
        held = begun[_held(begun)]
        return self._change((held if len(held) else begun)[:HELD_OUT_MOST])

    def groups(self, n_codebooks: int, key_dim: int) -> list[slice]:
        return [slice(0, n_codebooks)]

    def batch_rows(self, batch_size: int) -> int:
        return batch_size * self.positions

    def passes(self, heads_of: Heads) -> Iterator[Iterator[Tensor]]:
        def heads(batches: Iterator[Tensor]) -> Iterator[Tensor]:
            waiting, none_yet = self._begun[0][:0], True  # until there are enough for a batch
            for x in batches:
                waiting = torch.cat([waiting, self._fitting(x)])
                whole = len(waiting) // self._batch_rows * self._batch_rows
                if whole:
                    yield heads_of(self._change(waiting[:whole]))
                    waiting, none_yet = waiting[whole:], False
            if len(waiting) or none_yet:
                yield heads_of(self._change(waiting))

        while self.repeats:
            yield heads(self._checked(_flat(_embeddings(b))[0]) for b in self._batches)
        while True:  # a one-time iterator: once it is over, what was read first stands for it
            rest = (self._checked(_flat(_embeddings(b))[0]) for b in self._rest)
            yield heads(chain(self._begun, rest))
