"""Unlabelled rows for key initialisation, whether they lie in an array or come as batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dkvb import _validate
from dkvb.kernels.hashing import content_hash

HELD_OUT_EVERY = 10  # one row in ten, picked by its content, measures the keys and fits none
HELD_OUT_MOST = 2000
CHUNK_ROWS = 2048
GROUP_BYTES = {"cpu": 1 << 26, "cuda": 1 << 32}  # heads of a group of codebooks, kept for all epochs


class Rows(Protocol):
    """What key initialisation needs of its data."""

    at_least: int  # rows to fit keys from: exact below the number asked for
    positions: int  # h·w of spatial maps, else 1

    def mean(self) -> Tensor: ...
    def held_out(self) -> Tensor: ...
    def groups(self, n_codebooks: int, key_dim: int) -> list[slice]: ...
    def passes(self, heads_of: Callable[[Tensor], Tensor]) -> Iterator[Iterator[Tensor]]: ...


def rows_of(X: Any, *, at_least: int, passes: int, device: torch.device) -> Rows:
    """Wrap an array (n, m) or (n, h, w, m), or an iterable of such batches."""
    if hasattr(X, "shape") or (isinstance(X, list) and X and np.ndim(X[0]) == 1):
        return _ArrayRows(X, device)
    if not hasattr(X, "__iter__"):
        raise TypeError(f"X: expected an array or an iterable of batches; got {type(X).__name__}")
    if passes > 1 and iter(X) is X:
        raise ValueError(
            f"X: expected batches that can be iterated {passes} times; got a one-time iterator; "
            "pass a list or an object whose __iter__ starts anew, or epochs=1"
        )
    return _StreamRows(X, at_least, device)


def _flat(X: Any) -> tuple[Any, int]:
    """Rows (n·h·w, m) and the number of positions h·w."""
    if not isinstance(X, np.ndarray | Tensor):
        X = np.asarray(X)
    if X.ndim == 4:
        return X.reshape(-1, X.shape[3]), X.shape[1] * X.shape[2]
    return _validate.rows(X), 1


def _held(x: Tensor) -> Tensor:
    return content_hash(x) % HELD_OUT_EVERY == 0


class _ArrayRows:
    def __init__(self, X: Any, device: torch.device) -> None:
        flat, self.positions = _flat(X)
        self._X, self._device = _validate.rows(flat), device
        total = torch.zeros(self._X.shape[1], dtype=torch.float64, device=device)
        held = []
        for _, x in self._chunks():
            total += x.double().sum(dim=0)
            held.append(_held(x))
        self._mean = total / self._X.shape[0]
        self._held = torch.cat(held)
        if not self._held.any() or self._held.all():  # too few rows to spare any
            self._held[:] = False
        self.at_least = int((~self._held).sum())

    def _chunks(self) -> Iterator[tuple[slice, Tensor]]:
        return _validate.chunks(self._X, CHUNK_ROWS, "X", self._device)

    def mean(self) -> Tensor:
        return self._mean

    def held_out(self) -> Tensor:
        chosen = self._held if bool(self._held.any()) else ~self._held
        rows = torch.nonzero(chosen)[:HELD_OUT_MOST, 0]
        if not isinstance(self._X, Tensor):
            rows = rows.cpu().numpy()
        return _validate.as_float32(self._X[rows]).to(self._device)

    def groups(self, n_codebooks: int, key_dim: int) -> list[slice]:
        budget = GROUP_BYTES.get(self._device.type, GROUP_BYTES["cpu"])
        # Two at least, so that two cores have work.
        size = max(2, budget // (4 * self._X.shape[0] * key_dim))
        return [slice(i, min(i + size, n_codebooks)) for i in range(0, n_codebooks, size)]

    def passes(self, heads_of: Callable[[Tensor], Tensor]) -> Iterator[Iterator[Tensor]]:
        heads = torch.cat([heads_of(x[~self._held[part]]) for part, x in self._chunks()])
        while True:
            yield iter([heads])


class _StreamRows:
    def __init__(self, batches: Any, at_least: int, device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._rest = iter(batches)
        self._begun: list[Tensor] = []  # read until there are as many rows as keys
        self.positions = 1
        for batch in self._rest:
            flat, self.positions = _flat(batch)
            self._begun.append(self._checked(flat))
            if sum(int((~_held(x)).sum()) for x in self._begun) >= at_least:
                break
        if not self._begun:
            raise ValueError("X: expected at least one batch; got an empty iterable")
        self.at_least = sum(int((~_held(x)).sum()) for x in self._begun)

    def _checked(self, flat: Any) -> Tensor:
        width = self._begun[0].shape[1] if self._begun else None
        return _validate.as_float32(_validate.rows(flat, "X", width)).to(self._device)

    def mean(self) -> Tensor:
        return torch.cat(self._begun).double().mean(dim=0)

    def held_out(self) -> Tensor:
        begun = torch.cat(self._begun)
        held = begun[_held(begun)][:HELD_OUT_MOST]
        return held if len(held) else begun[:HELD_OUT_MOST]

    def groups(self, n_codebooks: int, key_dim: int) -> list[slice]:
        return [slice(0, n_codebooks)]

    def passes(self, heads_of: Callable[[Tensor], Tensor]) -> Iterator[Iterator[Tensor]]:
        def heads(batches: Iterator[Tensor]) -> Iterator[Tensor]:
            for x in batches:
                fitting = x[~_held(x)]
                if len(fitting):
                    yield heads_of(fitting)

        yield heads(chain(self._begun, (self._checked(_flat(b)[0]) for b in self._rest)))
        while iter(self._batches) is not self._batches:
            yield heads(self._checked(_flat(b)[0]) for b in self._batches)
        while True:  # a one-time iterator is over: what was read first stands for it
            yield heads(iter(self._begun))
