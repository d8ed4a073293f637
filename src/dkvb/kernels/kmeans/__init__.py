"""Statistics of keys: moving averages and Lloyd's algorithm, to initialise them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from dkvb.kernels import choose

__all__ = ["assign", "assign_sums", "ema"]


def ema(
    heads: Tensor,
    keys: Tensor,
    counts: Tensor,
    sums: Tensor,
    order: Tensor,
    batch_size: int,
    decay: float,
    threshold: float,
    seed: int,
    first_book: int = 0,
    first_step: int = 0,
    reset: bool = True,
    backend: str | None = None,
) -> None:
    """Move keys by exponential moving averages over whole epochs, in place.

    heads (n, g, d), keys and sums (g, K, d), counts (g, K), all float32 and for the same g
    codebooks; order (rows,) or (epochs, rows) int64 says which rows follow each other; every epoch
    is cut into batches of its own, the last one partial. A batch assigns its heads to the nearest
    keys, then counts := decay·counts + (1 − decay)·(heads of each key), sums likewise, and
    keys := sums / counts, with counts smoothed by Laplace's rule.

    Then keys with a count below `threshold` expire. With `reset` the first of them, at most a
    batch, become distinct rows of the batch in a hashed order, with count 1 and sum = key; the
    rest wait. Without it every one becomes a hashed row of the batch and its averages stay, as in
    the paper's reference implementation.

    `first_book` and `first_step` number the codebooks and batches, so that work split into several
    calls gives what one call gives.
    """
    _backend(keys, backend).ema(
        heads,
        keys,
        counts,
        sums,
        order,
        batch_size,
        decay,
        threshold,
        seed,
        first_book,
        first_step,
        reset,
    )


def assign(heads: Tensor, keys: Tensor, backend: str | None = None) -> Tensor:
    """The nearest of keys (g, K, d) to heads (n, g, d), both float32: codes (n, g) int32.

    Not canonical: for statistics, where a rounding error in a near tie does not matter.
    """
    codes: Tensor = _backend(keys, backend).assign(heads, keys)
    return codes


def assign_sums(
    heads: Tensor, keys: Tensor, backend: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One pass of Lloyd's algorithm over heads (n, g, d) with keys (g, K, d), both float32.

    Returns codes (n, g) int32, heads of each key (g, K) int64, their sums (g, K, d) float64 and the
    squared error of each codebook (g,) float64.
    """
    result: tuple[Tensor, Tensor, Tensor, Tensor]
    result = _backend(keys, backend).assign_sums(heads, keys)
    return result


def _backend(tensor: Tensor, backend: str | None) -> Any:
    return import_module(f"dkvb.kernels.kmeans.{choose(tensor.device, backend)}")
