"""Nearest keys on CUDA: scores live in registers, no distance tensor.

A product of float32 numbers is three tensor core products in float16, of their upper and lower
halves; the keys are split ahead. Every lane takes keys by groups and keeps the highest score of a
group, where that was, and the second highest of a group. When all keys have passed, the few keys of
the nearest group are scored one by one, which gives the nearest key and how close the runner-up
came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

# Of the scores: the halves keep 22 bits, and the tensor cores' sums in float32 are truncated.
UNIT_ROUNDOFF = 2.0**-23
LARGEST_HALF = 2.0**15  # numbers beyond are not split into halves of float16
SCALED_HEADS = 128  # of a program
GROUP = 4  # keys of which a lane keeps the highest score only
# The fastest tile of those tried on an H200, with and without a runner-up to keep.
TILE = {"ROWS": 64, "KEYS": 16, "num_warps": 1}
MULTIPLE = TILE["KEYS"] * GROUP  # the number of keys is padded to a multiple of this


@dataclass(frozen=True, eq=False)
class Prepared:
    """Halves of keys, upper and lower (C, P, D), and bias (C, P), padded with keys that are never
    chosen."""

    upper: Tensor
    lower: Tensor
    bias: Tensor
    n_pairs: int


def padded_dim(d: int) -> int:
    """The key dimension that tensor cores multiply: a power of two, 16 at least."""
    return max(16, int(triton.next_power_of_2(d)))


def prepare(keys: Tensor, bias: Tensor, dtype: torch.dtype = torch.float16) -> Prepared:
    """Lay out keys (C, K, d) and bias (C, K), which is infinite where a key must not be chosen.

    Halves are float16, or float32 with the bits of tf32 for numbers of any size, at half the speed.
    """
    missing = -keys.shape[1] % MULTIPLE
    rows = pad(keys.to(torch.float32), (0, padded_dim(keys.shape[2]) - keys.shape[2], 0, missing))
    if dtype == torch.float16:
        upper = rows.to(dtype)
    else:
        upper = ((rows.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    lower = (rows - upper.float()).to(dtype)
    bias = pad(bias.to(torch.float32), (0, missing), value=torch.inf).contiguous()
    return Prepared(upper.contiguous(), lower.contiguous(), bias, keys.shape[1])


def search(
    heads: Tensor, prepared: Prepared, tolerance: Tensor, top: int = 1
) -> tuple[Tensor, Tensor]:
    """The `top` lowest scores bias − h·k: codes (n, C, top) int32, and where that is unsure (n, C).

    One pass for each rank: a pass skips the keys that earlier passes have returned.
    """
    n, C, _ = heads.shape
    codes = torch.empty((n, C, top), dtype=torch.int32, device=heads.device)
    unsure = torch.zeros((n, C), dtype=torch.bool, device=heads.device)
    last_score = torch.empty((n, C), dtype=torch.float32, device=heads.device)
    last_code = torch.empty((n, C), dtype=torch.int32, device=heads.device)
    heads, tolerance = heads.contiguous(), tolerance.contiguous()
    for rank in range(top):
        launch(
            heads, prepared, last_code, n=n, tolerance=tolerance, unsure=unsure,
            last_score=last_score, first_pass=rank == 0,
        )  # fmt: skip
        codes[:, :, rank] = last_code
    return codes.clamp_(0, prepared.n_pairs - 1), unsure


def launch(
    heads: Tensor,
    prepared: Prepared,
    codes: Tensor,
    *,
    n: int,
    order: Tensor | None = None,
    tolerance: Tensor | None = None,
    unsure: Tensor | None = None,
    last_score: Tensor | None = None,
    first_pass: bool = True,
) -> None:
    """One pass over the keys: writes codes (n, C), and the rest where asked for.

    `order` (n,) says which rows of heads to take.
    """
    C, d = heads.shape[1:]
    P, D = prepared.upper.shape[1:]
    _search[(triton.cdiv(n, TILE["ROWS"]), C)](
        heads,
        prepared.upper,
        prepared.lower,
        prepared.bias,
        order,
        tolerance,
        last_score,
        codes,
        unsure,
        n,
        C,
        P,
        d,
        LARGEST_HALF,
        D=D,
        GROUP=GROUP,
        JUDGE=unsure is not None,
        FIRST=first_pass,
        GATHER=order is not None,
        **TILE,
        num_stages=3 if D <= 32 else 1,  # wide keys leave no shared memory for loading ahead
    )


def scaled(heads: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Heads (n, C, d) float64 times the scale (C,) of their codebook, float32, and the norms of
    these (n, C) float64; float64 is read only once."""
    n, C, d = heads.shape
    result = torch.empty(heads.shape, dtype=torch.float32, device=heads.device)
    norm = torch.empty((n, C), dtype=torch.float64, device=heads.device)
    _scale[(triton.cdiv(n * C, SCALED_HEADS),)](
        heads.contiguous(), scale, result, norm, n * C, C, d,
        D=triton.next_power_of_2(d), HEADS=SCALED_HEADS,
    )  # fmt: skip
    return result, norm


def lowest_two(keys: Tensor, heads: Tensor, books: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest of the scores bias − h·k in float64 and the second lowest, for one codebook a row:
    codes (r,) int32 and scores (r, 2). keys (C, K, d), heads (r, d), books (r,), bias (C, K)."""
    _, K, d = keys.shape
    codes = torch.empty(len(heads), dtype=torch.int32, device=heads.device)
    lowest = torch.empty((len(heads), 2), dtype=torch.float64, device=heads.device)
    _lowest_two[(len(heads),)](
        keys.contiguous(), heads.contiguous(), books, bias.contiguous(), codes, lowest, K, d,
        D=triton.next_power_of_2(d), KEYS=128, num_warps=4,
    )  # fmt: skip
    return codes, lowest


@triton.jit
def halves(x, HALF: tl.constexpr) -> Any:
    """The upper and lower half of numbers, for tensor cores."""
    if HALF:
        upper = x.to(tl.float16)
        lower = (x - upper.to(tl.float32)).to(tl.float16)
    else:
        upper = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        lower = x - upper
    return upper, lower


@triton.jit
def _scale(heads, scale, result, norm, n, C, d, D: tl.constexpr, HEADS: tl.constexpr) -> Any:
    i = tl.program_id(0).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    dim = tl.arange(0, D)
    at = i[:, None] * d + dim[None, :]
    there = (i < n)[:, None] & (dim < d)[None, :]
    h = tl.load(heads + at, mask=there, other=0.0) * tl.load(scale + i % C)[:, None]
    tl.store(result + at, h.to(tl.float32), mask=there)
    tl.store(norm + i, tl.sqrt(tl.sum(h * h, axis=1)), mask=i < n)


@triton.jit(do_not_specialize=["n"])  # compiled once, whatever n is
def _search(
    heads,
    upper,
    lower,
    bias,
    order,
    tolerance,
    last_score,
    last_code,
    unsure,
    n,
    C,
    P,
    d,
    largest,
    D: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    JUDGE: tl.constexpr,
    FIRST: tl.constexpr,
    GATHER: tl.constexpr,
) -> Any:
    HALF: tl.constexpr = upper.dtype.element_ty == tl.float16
    book = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = i < n
    row = tl.load(order + i, mask=there, other=0) if GATHER else i
    dim = tl.arange(0, D)
    h_at = heads + (row.to(tl.int64) * C + book)[:, None] * d + dim[None, :]
    h_there = there[:, None] & (dim < d)[None, :]
    h = tl.load(h_at, mask=h_there, other=0.0)  # (ROWS, D)
    h_upper, h_lower = halves(h, HALF)
    at = i.to(tl.int64) * C + book
    if JUDGE:
        slack = tl.load(tolerance + at, mask=there, other=0.0)
    if not FIRST:
        # Where scores lie closer than the slack, this row is unsure already.
        limit = tl.load(last_score + at, mask=there, other=0.0) - 0.5 * slack
    # Of scores with the sign turned, h·k − bias.
    best = tl.full((ROWS, KEYS), float("-inf"), tl.float32)
    second = tl.full((ROWS, KEYS), float("-inf"), tl.float32)
    group = tl.zeros((ROWS, KEYS), tl.int32)
    lane = tl.arange(0, KEYS) * GROUP
    columns = (book * P + lane)[:, None] * D + dim[None, :]
    for first in range(0, P, KEYS * GROUP):
        highest = best
        for j in tl.static_range(GROUP):
            k_upper = tl.trans(tl.load(upper + columns + (first + j) * D))  # (D, KEYS)
            k_lower = tl.trans(tl.load(lower + columns + (first + j) * D))
            b = tl.load(bias + book * P + first + lane + j)
            score = tl.broadcast_to(-b[None, :], (ROWS, KEYS))
            score = tl.dot(h_lower, k_upper, acc=score, input_precision="tf32")
            score = tl.dot(h_upper, k_lower, acc=score, input_precision="tf32")
            score = tl.dot(h_upper, k_upper, acc=score, input_precision="tf32")
            if not FIRST:
                score = tl.where(score < limit[:, None], score, float("-inf"))
            highest = score if j == 0 else tl.maximum(highest, score)  # of the group
        if JUDGE:
            second = tl.maximum(second, tl.minimum(best, highest))
        group = tl.where(highest > best, first, group)
        best = tl.maximum(best, highest)
    highest_of_all = tl.max(best, axis=1)
    is_highest = best == highest_of_all[:, None]
    group += lane[None, :]
    nearest = tl.min(tl.where(is_highest, group, 2147483647), axis=1)
    if JUDGE:
        chosen = is_highest & (group == nearest[:, None])
        runner_up = tl.max(tl.where(chosen, second, best), axis=1)
    # Loaded again: kept in registers, heads would slow down the passage of the keys.
    h = tl.load(h_at, mask=h_there, other=0.0, cache_modifier=".cg")
    winner = nearest
    found = tl.full((ROWS,), float("-inf"), tl.float32)
    for j in tl.static_range(GROUP):
        key = nearest + j
        k_at = (book * P + key)[:, None] * D + dim[None, :]
        k = tl.load(upper + k_at).to(tl.float32) + tl.load(lower + k_at).to(tl.float32)
        score = tl.sum(h * k, axis=1) - tl.load(bias + book * P + key)
        if not FIRST:
            score = tl.where(score < limit, score, float("-inf"))
        if JUDGE:
            runner_up = tl.maximum(runner_up, tl.minimum(found, score))
        winner = tl.where(score > found, key, winner)
        found = tl.maximum(found, score)
    tl.store(last_code + at, winner, mask=there)
    if JUDGE:
        before = tl.load(unsure + at, mask=there, other=0).to(tl.int1)
        # Written so that NaN, and fewer keys than asked for (−inf), count as unsure.
        sure = (found > runner_up + slack) & (tl.max(tl.abs(h), axis=1) < largest)
        tl.store(unsure + at, before | ~sure, mask=there)
        tl.store(last_score + at, found, mask=there)


@triton.jit
def _lowest_two(
    keys, heads, books, bias, codes, lowest, K, d, D: tl.constexpr, KEYS: tl.constexpr
) -> Any:
    i = tl.program_id(0).to(tl.int64)
    book = tl.load(books + i)
    dim = tl.arange(0, D)
    h = tl.load(heads + i * d + dim, mask=dim < d, other=0.0)
    best = tl.full((KEYS,), float("inf"), tl.float64)
    second = tl.full((KEYS,), float("inf"), tl.float64)
    code = tl.zeros((KEYS,), tl.int32)
    for first in range(0, K, KEYS):
        key = first + tl.arange(0, KEYS)
        at = keys + (book * K + key)[:, None] * d + dim[None, :]
        k = tl.load(at, mask=(key < K)[:, None] & (dim < d)[None, :], other=0.0).to(tl.float64)
        b = tl.load(bias + book * K + key, mask=key < K, other=float("inf"))
        score = b - tl.sum(k * h[None, :], axis=1)
        second = tl.minimum(second, tl.maximum(best, score))
        code = tl.where(score < best, key, code)
        best = tl.minimum(best, score)
    least = tl.min(best, axis=0)
    winner = tl.min(tl.where(best == least, code, 2147483647), axis=0)
    chosen = (best == least) & (code == winner)
    tl.store(codes + i, tl.minimum(winner, K - 1))
    tl.store(lowest + 2 * i, least)
    tl.store(lowest + 2 * i + 1, tl.min(tl.where(chosen, second, best), axis=0))
