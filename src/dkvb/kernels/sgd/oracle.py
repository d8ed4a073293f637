"""SGD on values, the obvious way; see `dkvb.kernels.sgd`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dkvb._support.hashing import bits

ELEMENTS = 1 << 24  # of what is read at a time
DIGITS = {torch.bfloat16: 8, torch.float16: 11}  # of the significand, in bits
LEAST = {torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24}  # the smallest number above zero


def descend(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float = 0.0,
) -> None:
    """Change values (C, K, Y) in place by SGD over whole epochs."""
    n_codebooks, _, n_columns = values.shape
    books = torch.arange(n_codebooks, device=values.device)
    for order in orders:
        for rows in order.split(batch_size):
            read = books, codes[rows].long()  # (B, C) pairs
            logits = values[read].mean(dim=1)  # (B, Y)
            target = one_hot(y[rows], n_columns) * (1 - smoothing) + smoothing / n_columns
            gradient = (torch.softmax(logits, dim=1) - target.to(values.dtype)) / len(rows)
            change = (-lr / n_codebooks * gradient)[:, None, :].expand(-1, n_codebooks, -1)
            values.index_put_(read, change, accumulate=True)


def step(sums: Tensor, y: Tensor, n_codebooks: int, lr: float, smoothing: float) -> Tensor:
    """What a step adds to each value read, from their sums over all codebooks (B, Y): (B, Y)."""
    n_rows, n_columns = sums.shape
    shares = torch.softmax(sums / n_codebooks, dim=1)
    shares[torch.arange(n_rows, device=y.device), y] -= 1 - smoothing  # softmax − target
    return (shares - smoothing / n_columns) * (-lr / (n_codebooks * n_rows))


def pool(values: Tensor, codes: Tensor) -> Tensor:
    """The sum of the values that each row of codes (B, C) reads: (B, Y), a few codebooks a time."""
    total = torch.zeros((len(codes), values.shape[2]), device=values.device)
    for books, part in _books(values, codes):
        total += values[books, part].float().sum(dim=1)
    return total


def push(values: Tensor, codes: Tensor, change: Tensor, seed: int = 0) -> None:
    """Add change (B, Y) to all values that each row of codes (B, C) reads, in place."""
    for books, part in _books(values, codes):
        place = (books * values.shape[1] + part).flatten()  # (B·g,) pairs
        read, position = torch.unique(place, return_inverse=True)
        added = torch.zeros((len(read), change.shape[1]), device=values.device)
        row = torch.arange(len(codes), device=codes.device).repeat_interleave(len(books))
        size = ELEMENTS // change.shape[1] if values.is_cuda else _ROWS
        for rows, at in zip(row.split(size), position.split(size), strict=True):
            added.index_add_(0, at, change[rows])
        table = values.view(-1, values.shape[2])
        new = table[read].float() + added
        table[read] = (
            new if values.dtype == torch.float32 else _at_random(new, values.dtype, read, seed)
        )


_ROWS = 1 << 14
_ODD = 0x5851F42D4C957F2D


def _at_random(exact: Tensor, dtype: torch.dtype, place: Tensor, seed: int) -> Tensor:
    """Numbers (U, Y) rounded up or down with the odds of what is lost or gained thereby."""
    column = torch.arange(exact.shape[1], device=exact.device)
    mixed = bits(seed, place, 0, 0)[:, None] ^ bits(seed, column, 1, 0)  # (U, Y)
    share = ((mixed * _ODD) >> 40 & 0xFFFFFF).float() * 2.0**-24  # from 0 to below 1
    gap = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - DIGITS[dtype])
    gap = gap.clamp(min=LEAST[dtype])
    return (gap * torch.floor(exact / gap + share)).to(dtype)


def _books(values: Tensor, codes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some codebooks (g,) and the codes (B, g) of a batch in them, so that reading stays small."""
    size = max(1, ELEMENTS // max(1, len(codes) * values.shape[2]))
    every = torch.arange(values.shape[0], device=values.device)
    return zip(every.split(size), codes.long().split(size, dim=1), strict=True)
