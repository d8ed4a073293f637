"""Sorted lists of counts: two joined into one, sums over what rows find in them, hashes of rows.

A list is (places (E,) int64 ascending and distinct, counts (E,) int32), where a place is
pair · CLASS_STRIDE + class.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from torch import Tensor

from dkvb.kernels import choose
from dkvb.kernels.counts.places import CLASS_STRIDE

__all__ = ["CLASS_STRIDE", "Bounded", "hash_codes", "join", "pool", "pool_logs"]


class Bounded(NamedTuple):
    """A list, and where the entries of each pair begin in it."""

    places: Tensor  # (E,) int64
    counts: Tensor  # (E,) int32
    bounds: Tensor  # (pairs + 1,) int64


def join(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], backend: str | None = None
) -> tuple[Tensor, Tensor]:
    """One list with the sums of both; places where they are zero are dropped."""
    joined: tuple[Tensor, Tensor] = _backend(first[0], backend).join(*first, *second)
    return joined


def pool(found: Bounded, pairs: Tensor, n_columns: int, backend: str | None = None) -> Tensor:
    """Σ over the pairs (n, C) of a row of the counts of each class: (n, n_columns) int64."""
    pooled: Tensor = _backend(pairs, backend).pool(found, pairs, n_columns)
    return pooled


def pool_logs(
    own: Bounded,
    regional: Bounded,
    pairs: Tensor,
    regions: Tensor,
    shares: Tensor,
    weights: Tensor,
    constant: Tensor,
    backend: str | None = None,
) -> Tensor:
    """Σ over the pairs p (n, C) of a row, of log of (constant[y] + weights[0, y] · own[p, y] +
    Σ over cuts r of weights[1 + r, y] · shares[q] · regional[q, y]), where q is the region of p in
    cut r: regions (n, R·C), cut by cut. shares (cells of `regional`,), weights (1 + R, Y) and
    constant (Y,) are float64, and so is what comes: (n, Y).
    """
    pooled: Tensor = _backend(pairs, backend).pool_logs(
        own, regional, pairs, regions, shares, weights, constant
    )
    return pooled


def hash_codes(codes: Tensor, factors: Tensor, backend: str | None = None) -> Tensor:
    """`bits(3, Σ codes · factors, 0, 0)` of each row of codes (n, C) of integers, with factors (C,)
    int64 and sums that wrap: (n,) int64."""
    hashes: Tensor = _backend(codes, backend).hash_codes(codes, factors)
    return hashes


def _backend(tensor: Tensor, backend: str | None) -> Any:
    name = choose(tensor.device, backend)
    # On a GPU the plain version is quick enough.
    return import_module(f"dkvb.kernels.counts.{'oracle' if name == 'triton' else name}")
