"""Nearest keys on CUDA: scores live in registers, no distance tensor.

Every lane keeps the lowest and second lowest score of the keys it has seen, so that one pass over
the keys gives the nearest key and how close the runner-up came. A product of float32 numbers is
three tensor core products in tf32, of their upper and lower halves; the keys are split ahead.
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
KEYS = 64  # the number of keys is padded to a multiple of this
# The fastest tiles of those tried on an H200, with and without a runner-up to keep.
JUDGED = {"ROWS": 64, "KEYS": 16, "num_warps": 1}
PLAIN = {"ROWS": 128, "KEYS": 32, "num_warps": 2}


@dataclass(frozen=True, eq=False)
class Prepared:
    """Keys in columns, split into halves: upper and lower (C, D, P), bias (C, P), padded with keys
    that are never chosen."""

    upper: Tensor
    lower: Tensor
    bias: Tensor
    n_pairs: int


def padded_dim(d: int) -> int:
    """The key dimension that tensor cores multiply: a power of two, 16 at least."""
    return max(16, int(triton.next_power_of_2(d)))


def prepare(keys: Tensor, bias: Tensor) -> Prepared:
    """Lay out keys (C, K, d) and bias (C, K), which is infinite where a key must not be chosen."""
    missing = -keys.shape[1] % KEYS
    columns = pad(keys.to(torch.float32).transpose(1, 2), (0, missing))
    columns = pad(columns, (0, 0, 0, padded_dim(keys.shape[2]) - keys.shape[2])).contiguous()
    upper = ((columns.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    bias = pad(bias.to(torch.float32), (0, missing), value=torch.inf).contiguous()
    return Prepared(upper, columns - upper, bias, keys.shape[1])


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
    D = prepared.upper.shape[1]
    tile = PLAIN if unsure is None else JUDGED
    _search[(triton.cdiv(n, tile["ROWS"]), C)](
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
        prepared.bias.shape[1],
        d,
        D=D,
        JUDGE=unsure is not None,
        FIRST=first_pass,
        GATHER=order is not None,
        **tile,
        num_stages=3 if D <= 32 else 1,  # wide keys leave no shared memory for loading ahead
    )


@triton.jit
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
    D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    JUDGE: tl.constexpr,
    FIRST: tl.constexpr,
    GATHER: tl.constexpr,
) -> Any:
    book = tl.program_id(1)
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = i < n
    row = tl.load(order + i, mask=there, other=0) if GATHER else i
    dim = tl.arange(0, D)
    h = tl.load(
        heads + (row.to(tl.int64) * C + book)[:, None] * d + dim[None, :],
        mask=there[:, None] & (dim < d)[None, :],
        other=0.0,
    )  # (ROWS, D)
    h_upper = ((h.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    h_lower = h - h_upper
    at = i.to(tl.int64) * C + book
    if not FIRST:
        skip_score = tl.load(last_score + at, mask=there, other=0.0)
        skip_code = tl.load(last_code + at, mask=there, other=0)
    best = tl.full((ROWS, KEYS), float("inf"), tl.float32)
    second = tl.full((ROWS, KEYS), float("inf"), tl.float32)
    code = tl.full((ROWS, KEYS), 2147483647, tl.int32)
    key = tl.arange(0, KEYS)
    columns = book.to(tl.int64) * D * P + dim[:, None] * P + key[None, :]
    for first in range(0, P, KEYS):
        k_upper = tl.load(upper + columns + first)  # (D, KEYS)
        k_lower = tl.load(lower + columns + first)
        b = tl.load(bias + book.to(tl.int64) * P + first + key)
        product = tl.dot(h_lower, k_upper, input_precision="tf32")
        product = tl.dot(h_upper, k_lower, acc=product, input_precision="tf32")
        product = tl.dot(h_upper, k_upper, acc=product, input_precision="tf32")
        score = b[None, :] - product
        if not FIRST:
            later = (score > skip_score[:, None]) | (
                (score == skip_score[:, None]) & (first + key[None, :] > skip_code[:, None])
            )
            score = tl.where(later, score, float("inf"))
        if JUDGE:
            second = tl.minimum(second, tl.maximum(best, score))
        closer = score < best
        code = tl.where(closer, first + key[None, :], code)
        best = tl.where(closer, score, best)
    lowest = tl.min(best, axis=1)
    is_lowest = best == lowest[:, None]
    winner = tl.min(tl.where(is_lowest, code, 2147483647), axis=1)
    tl.store(last_code + at, winner, mask=there)
    if JUDGE:
        chosen = is_lowest & (code == winner[:, None])
        runner_up = tl.min(tl.where(chosen, second, best), axis=1)
        slack = tl.load(tolerance + at, mask=there, other=0.0)
        before = tl.load(unsure + at, mask=there, other=0).to(tl.int1)
        # Written so that NaN, and fewer keys than asked for (inf), count as unsure.
        tl.store(unsure + at, before | ~(runner_up > lowest + slack), mask=there)
        tl.store(last_score + at, lowest, mask=there)
