"""Sorted lists of counts: two joined into one, and sums over what rows find in them.

A list is (places (E,) int64 ascending and distinct, counts (E,) int32), where a place is
pair · COLUMNS + class. Everything is integers, so that results are equal on any backend.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from dkvb.kernels import choose

__all__ = ["COLUMNS", "join", "pool"]

COLUMNS = 1 << 20  # of classes that a place has room for


def join(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], backend: str | None = None
) -> tuple[Tensor, Tensor]:
    """One list with the sums of both; places where they are zero are dropped."""
    joined: tuple[Tensor, Tensor] = _backend(first[0], backend).join(*first, *second)
    return joined


def pool(
    places: Tensor,
    counts: Tensor,
    bounds: Tensor,
    pairs: Tensor,
    table: Tensor,
    n_columns: int,
    backend: str | None = None,
) -> Tensor:
    """Σ over the pairs (n, C) of a row, of table[count] for each class: (n, n_columns) int64.

    The entries of pair p stand at bounds[p] to bounds[p + 1]; classes without an entry add nothing.
    """
    pooled: Tensor = _backend(places, backend).pool(places, counts, bounds, pairs, table, n_columns)
    return pooled


def _backend(tensor: Tensor, backend: str | None) -> Any:
    name = choose(tensor.device, backend)
    # On a GPU the plain version is quick enough.
    return import_module(f"dkvb.kernels.tally.{'oracle' if name == 'triton' else name}")
