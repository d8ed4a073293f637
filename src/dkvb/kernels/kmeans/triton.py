"""Statistics of keys on CUDA: four launches a batch for all codebooks together.

A batch is searched; all averages decay; the keys that heads attach to move; expired keys start
anew. Heads of one key are added up by a matrix product with a 0/1 matrix: no atomic additions, the
same result on every run.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.kmeans import oracle
from dkvb.kernels.nearest import triton as nearest

ROWS = 32
UPDATE_KEYS = 128
EXPIRY_KEYS = 512
DRAWS_AT_ONCE = 1 << 25  # random numbers made ahead: 256 MB
HEADS_AT_ONCE = 1 << 27


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
    """See `dkvb.kernels.kmeans.ema`."""
    g, K, d = keys.shape
    heads = heads.contiguous()
    layout = nearest.prepare(keys, 0.5 * keys.double().square().sum(dim=2))
    codes = torch.empty((batch_size, g), dtype=torch.int32, device=keys.device)
    total = counts.sum(dim=1)
    shape = {"D": layout.upper.shape[1], "P": layout.bias.shape[1], "g": g, "K": K, "d": d}
    state = (counts, sums, layout.upper, layout.lower, layout.bias, total)
    at_once = max(1, DRAWS_AT_ONCE // (g * (batch_size if reset else K)))
    for epoch in order.reshape(-1, order.shape[-1]):
        for rows in epoch.to(torch.int32).split(at_once * batch_size):
            drawn = (_distinct if reset else _repeated)(
                len(rows), g, K, batch_size, seed, first_book, first_step, keys.device
            )
            for step, batch in enumerate(rows.split(batch_size)):
                n = len(batch)
                nearest.launch(heads, layout, codes, n=n, order=batch)
                _decay[(g, triton.cdiv(K, UPDATE_KEYS))](
                    *state, n, decay, oracle.SMOOTHING, **shape, KEYS=UPDATE_KEYS, num_warps=4
                )
                _attach[(triton.cdiv(n, ROWS), g)](
                    heads, *state, codes, batch, n, decay, oracle.SMOOTHING,
                    **shape, ROWS=ROWS, num_warps=4,
                )  # fmt: skip
                _expire[(g,)](
                    heads, *state, batch, drawn[step], n, decay, threshold,
                    drawn.shape[2], **shape, KEYS=EXPIRY_KEYS, RESET=reset, num_warps=4,
                )  # fmt: skip
            first_step += drawn.shape[0]
    keys.copy_((layout.upper + layout.lower)[:, :d, :K].transpose(1, 2))


def assign(heads: Tensor, keys: Tensor) -> Tensor:
    """See `dkvb.kernels.kmeans.assign`."""
    layout = nearest.prepare(keys, 0.5 * keys.double().square().sum(dim=2))
    codes = torch.empty(heads.shape[:2], dtype=torch.int32, device=keys.device)
    nearest.launch(heads.contiguous(), layout, codes, n=len(heads))
    return codes


def assign_sums(heads: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `dkvb.kernels.kmeans.assign_sums`."""
    n, (g, K, d) = len(heads), keys.shape
    codes = assign(heads, keys)
    counts = torch.zeros((g, K), dtype=torch.int64, device=keys.device)
    sums = torch.zeros((g, K, d), dtype=torch.float64, device=keys.device)
    errors = torch.zeros(g, dtype=torch.float64, device=keys.device)
    step = max(1, HEADS_AT_ONCE // (n * d))
    for first in range(0, g, step):
        books = slice(first, first + step)
        own = heads[:, books].double()  # (n, b, d)
        b = own.shape[1]
        place = (codes[:, books] + K * torch.arange(b, device=keys.device)).flatten()
        counts[books] = torch.bincount(place, minlength=b * K).view(b, K)
        sums[books].view(-1, d).index_add_(0, place, own.flatten(0, 1))
        fetched = keys[books].reshape(-1, d)[place].view_as(own)
        errors[books] = (own - fetched).square().sum(dim=(0, 2))
    return codes, counts, sums, errors


def _distinct(n: int, g: int, K: int, batch: int, *counters: Any) -> Tensor:
    """For each step and codebook the places of the batch in a random order (steps, g, batch)."""
    random, place, step = _random(n, g, batch, batch, *counters)
    random.masked_fill_(step * batch + place >= n, torch.iinfo(torch.int64).max)
    return torch.argsort(random, dim=2, stable=True).to(torch.int32)


def _repeated(n: int, g: int, K: int, batch: int, *counters: Any) -> Tensor:
    """For each step, codebook and key some place of the batch (steps, g, K)."""
    random, _, step = _random(n, g, batch, K, *counters)
    return (random % (n - step * batch).clamp(max=batch)).to(torch.int32)


def _random(
    n: int,
    g: int,
    batch: int,
    width: int,
    seed: int,
    first_book: int,
    first_step: int,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor]:
    step = torch.arange(triton.cdiv(n, batch), device=device)[:, None, None]
    book = torch.arange(g, device=device)[:, None]
    place = torch.arange(width, device=device)
    return bits(seed, first_book + book, first_step + step, place), place, step


@triton.jit
def _heads(heads, rows, there, book, g, d, D: tl.constexpr) -> Any:
    """The heads of some rows in one codebook (len(rows), D), zero where there is none."""
    dim = tl.arange(0, D)
    at = (rows.to(tl.int64) * g + book)[:, None] * d + dim[None, :]
    return tl.load(heads + at, mask=there[:, None] & (dim < d)[None, :], other=0.0)


@triton.jit
def _write(upper, lower, bias, k, key, wanted, book, P, d, D: tl.constexpr) -> Any:
    """Write keys k (len(key), D) as the search wants them."""
    dim = tl.arange(0, D)
    inside = wanted[:, None] & (dim < d)[None, :]
    k_upper = ((k.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    column = (book.to(tl.int64) * D + dim)[None, :] * P + key[:, None]
    tl.store(upper + column, k_upper, mask=inside)
    tl.store(lower + column, k - k_upper, mask=inside)
    tl.store(bias + book.to(tl.int64) * P + key, 0.5 * tl.sum(k * k, axis=1), mask=wanted)


@triton.jit
def _smoothed(N, sum_before, n, decay, smoothing, K) -> Any:
    """Counts by Laplace's rule, given their sum before this batch of n heads."""
    total = decay * sum_before + (1.0 - decay) * n
    return (N + smoothing) * (total / (total + K * smoothing))


@triton.jit
def _decay(
    counts,
    sums,
    upper,
    lower,
    bias,
    total,
    n,
    decay,
    smoothing,
    g,
    K,
    P,
    d,
    D: tl.constexpr,
    KEYS: tl.constexpr,
) -> Any:
    """All averages as if no head attached, and the keys they give."""
    book = tl.program_id(0)
    key = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    dim = tl.arange(0, D)
    place = book.to(tl.int64) * K + key
    at = place[:, None] * d + dim[None, :]
    inside = (key < K)[:, None] & (dim < d)[None, :]
    N = decay * tl.load(counts + place, mask=key < K, other=1.0)
    m = decay * tl.load(sums + at, mask=inside, other=0.0)
    tl.store(counts + place, N, mask=key < K)
    tl.store(sums + at, m, mask=inside)
    k = m / _smoothed(N, tl.load(total + book), n, decay, smoothing, K)[:, None]
    _write(upper, lower, bias, k, key, key < K, book, P, d, D)


@triton.jit
def _attach(
    heads,
    counts,
    sums,
    upper,
    lower,
    bias,
    total,
    codes,
    rows,
    n,
    decay,
    smoothing,
    g,
    K,
    P,
    d,
    D: tl.constexpr,
    ROWS: tl.constexpr,
) -> Any:
    """The first row that attaches to a key adds all rows that do."""
    book = tl.program_id(1)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    key = tl.load(codes + r * g + book, mask=r < n, other=-1)
    attached = tl.zeros((ROWS,), tl.float32)
    earlier = tl.zeros((ROWS,), tl.int32)
    moved = tl.zeros((ROWS, D), tl.float32)
    for first in range(0, n, ROWS):
        other = first + tl.arange(0, ROWS)
        theirs = tl.load(codes + other * g + book, mask=other < n, other=-2)
        same = key[:, None] == theirs[None, :]  # (ROWS, ROWS)
        attached += tl.sum(same.to(tl.float32), axis=1)
        earlier += tl.sum((same & (other[None, :] < r[:, None])).to(tl.int32), axis=1)
        row = tl.load(rows + other, mask=other < n, other=0)
        h = _heads(heads, row, other < n, book, g, d, D)
        h_upper = ((h.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        # 0 and 1 are exact in tf32, so that two products are as good as float32.
        moved = tl.dot(same.to(tl.float32), h - h_upper, acc=moved, input_precision="tf32")
        moved = tl.dot(same.to(tl.float32), h_upper, acc=moved, input_precision="tf32")
    leads = (earlier == 0) & (r < n)
    dim = tl.arange(0, D)
    place = book.to(tl.int64) * K + key
    at = place[:, None] * d + dim[None, :]
    inside = leads[:, None] & (dim < d)[None, :]
    N = tl.load(counts + place, mask=leads, other=1.0) + (1.0 - decay) * attached
    m = tl.load(sums + at, mask=inside, other=0.0) + (1.0 - decay) * moved
    tl.store(counts + place, N, mask=leads)
    tl.store(sums + at, m, mask=inside)
    k = m / _smoothed(N, tl.load(total + book), n, decay, smoothing, K)[:, None]
    _write(upper, lower, bias, k, key, leads, book, P, d, D)


@triton.jit
def _expire(
    heads,
    counts,
    sums,
    upper,
    lower,
    bias,
    total,
    rows,
    drawn,
    n,
    decay,
    threshold,
    draws,
    g,
    K,
    P,
    d,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    RESET: tl.constexpr,
) -> Any:
    """Keys with too small a count become rows of the batch; leaves the new sum of counts."""
    book = tl.program_id(0)
    waiting = 0
    sum_of_counts = 0.0
    for first in range(0, K, KEYS):
        key = first + tl.arange(0, KEYS)
        place = book.to(tl.int64) * K + key
        N = tl.load(counts + place, mask=key < K, other=float("inf"))
        taken = threshold > N
        turn = key
        if RESET:
            expired = taken.to(tl.int32)
            turn = waiting + tl.cumsum(expired, axis=0) - expired
            waiting += tl.sum(expired, axis=0)
            taken = taken & (turn < n)
        if tl.sum(taken.to(tl.int32), axis=0) > 0:
            drawn_row = tl.load(drawn + book * draws + turn, mask=taken, other=0)
            fresh = _heads(
                heads, tl.load(rows + drawn_row, mask=taken, other=0), taken, book, g, d, D
            )
            _write(upper, lower, bias, fresh, key, taken, book, P, d, D)
            if RESET:
                dim = tl.arange(0, D)
                at = place[:, None] * d + dim[None, :]
                tl.store(sums + at, fresh, mask=taken[:, None] & (dim < d)[None, :])
                tl.store(counts + place, tl.full((KEYS,), 1.0, tl.float32), mask=taken)
                N = tl.where(taken, 1.0, N)
        sum_of_counts += tl.sum(tl.where(key < K, N, 0.0), axis=0)
    tl.store(total + book, sum_of_counts)
