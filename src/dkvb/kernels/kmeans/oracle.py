"""Statistics of keys and classes, the obvious way; see `dkvb.kernels.kmeans`."""

from __future__ import annotations

import torch
from torch import Tensor

from dkvb._support.hashing import bits

SMOOTHING = 1e-5  # Laplace's, on counts relative to their sum


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
) -> None:
    """Move keys (g, K, d), counts (g, K) and sums (g, K, d) over whole epochs, in place."""
    epochs = order.reshape(-1, order.shape[-1])
    batches = [batch for epoch in epochs for batch in epoch.split(batch_size)]
    for g in range(keys.shape[0]):
        for step, rows in enumerate(batches, start=first_step):
            batch = heads[rows, g]  # (B, d)
            codes = _nearest(batch, keys[g])
            ones = torch.ones_like(batch[:, 0])
            counts[g] = decay * counts[g] + (1 - decay) * _total(codes, ones, counts[g])
            sums[g] = decay * sums[g] + (1 - decay) * _total(codes, batch, sums[g])
            total = counts[g].sum()
            smoothed = (counts[g] + SMOOTHING) / (total + len(keys[g]) * SMOOTHING) * total
            keys[g] = sums[g] / smoothed[:, None]

            expired = torch.nonzero(counts[g] < threshold)[:, 0]
            if reset:
                expired = expired[: len(rows)]
                position = torch.arange(len(rows), device=keys.device)
                drawn = torch.argsort(bits(seed, first_book + g, step, position), stable=True)
                keys[g, expired] = batch[drawn[: len(expired)]]
                counts[g, expired] = 1
                sums[g, expired] = keys[g, expired]
            else:
                keys[g, expired] = batch[bits(seed, first_book + g, step, expired) % len(rows)]


def assign(heads: Tensor, keys: Tensor) -> Tensor:
    """The nearest key of each head: codes (n, g)."""
    nearest = [_nearest(heads[:, g], keys[g]) for g in range(keys.shape[0])]
    return torch.stack(nearest, dim=1).to(torch.int32)


def assign_sums(heads: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One pass of Lloyd's algorithm: codes (n, g), counts (g, K), sums (g, K, d), errors (g,)."""
    codes = assign(heads, keys)
    counts = torch.zeros(keys.shape[:2], dtype=torch.int64, device=keys.device)
    sums = torch.zeros(keys.shape, dtype=torch.float64, device=keys.device)
    errors = torch.zeros(len(keys), dtype=torch.float64, device=keys.device)
    for g in range(keys.shape[0]):
        batch = heads[:, g].double()  # (n, d)
        counts[g] = torch.bincount(codes[:, g], minlength=keys.shape[1])
        sums[g] = _total(codes[:, g], batch, sums[g])
        errors[g] = (batch - keys[g, codes[:, g]].double()).square().sum()
    return codes, counts, sums, errors


def _nearest(batch: Tensor, keys: Tensor) -> Tensor:
    """The nearest key (n,) of each head (n, d), the lowest index on ties."""
    scores = 0.5 * keys.double().square().sum(1) - batch.double() @ keys.double().T  # (n, K)
    return torch.sort(scores, dim=1, stable=True).indices[:, 0]


def _total(codes: Tensor, what: Tensor, like: Tensor) -> Tensor:
    """The sum of `what` over the rows of each code, shaped as `like`."""
    return torch.zeros_like(like).index_add_(0, codes, what)
