"""Statistics of keys on CUDA: four kernels a batch for all codebooks together.

A batch is searched; all averages decay; the keys that heads attach to move; expired keys start
anew. Heads of one key are added up by a matrix product with a 0/1 matrix: no atomic additions, the
same result on every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.kmeans import oracle
from dkvb.kernels.nearest import triton as nearest

ROWS = 64
UPDATE_KEYS = 128
EXPIRY_KEYS = 512
RECORDED = 4  # batches of a CUDA graph
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
    heads, written = heads.contiguous(), keys.contiguous()
    epochs = order.reshape(-1, order.shape[-1]).to(torch.int32)
    left = len(epochs) * triton.cdiv(epochs.shape[1], batch_size)
    layout = _prepare(heads, keys)
    codes = torch.empty((batch_size, g), dtype=torch.int32, device=keys.device)
    P, D = layout.upper.shape[1:]
    shape = {"D": D, "P": P, "g": g, "K": K, "d": d}
    total = counts.sum(dim=1)
    state = (counts, sums, written, layout.upper, layout.lower, layout.bias, total)

    def move(batch: Tensor, drawn: Tensor, last: bool = False) -> None:
        n = len(batch)
        nearest.launch(heads, layout, codes, n=n, order=batch)
        _decay[(g, triton.cdiv(K, UPDATE_KEYS))](
            *state, n, last, decay, oracle.SMOOTHING, **shape, KEYS=UPDATE_KEYS, num_warps=4
        )
        _attach[(triton.cdiv(n, ROWS), g)](
            heads, *state, codes, batch, n, last, decay, oracle.SMOOTHING,
            **shape, ROWS=ROWS, num_warps=1,
        )  # fmt: skip
        _expire[(g,)](
            heads, *state, batch, drawn, n, last, decay, threshold, drawn.shape[1],
            **shape, KEYS=EXPIRY_KEYS, RESET=reset, num_warps=4,
        )  # fmt: skip

    at_once = max(1, DRAWS_AT_ONCE // (g * (batch_size if reset else K)))
    recorded = _Recorded(move, batch_size)
    for epoch in epochs:
        for rows in epoch.split(at_once * batch_size):
            drawn = (_distinct if reset else _repeated)(
                len(rows), g, K, batch_size, seed, first_book, first_step, keys.device
            )
            first_step += len(drawn)
            size = RECORDED * batch_size
            for some, own in zip(rows.split(size), drawn.split(RECORDED), strict=True):
                left -= len(own)
                if len(some) == size and left and keys.is_cuda:
                    recorded(some, own)
                    continue
                for step, batch in enumerate(some.split(batch_size)):
                    # Only at the very last are the keys themselves written.
                    move(batch, own[step], last=left == 0 and step == len(own) - 1)
    recorded.close()
    if written is not keys:
        keys.copy_(written)


class _Recorded:
    """`RECORDED` batches in one launch, a CUDA graph: one by one, they would take the CPU longer
    than the GPU. The first ones are launched one by one, so that everything is compiled."""

    def __init__(self, move: Callable[[Tensor, Tensor], None], batch_size: int) -> None:
        self.move, self.batch_size = move, batch_size
        self.inputs: tuple[Tensor, Tensor] | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor, drawn: Tensor) -> None:
        if self.inputs is None:
            self.inputs = rows.clone(), drawn.clone()
            self._launch(rows, drawn)
            return
        for own, new in zip(self.inputs, (rows, drawn), strict=True):
            own.copy_(new)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.Stream(rows.device)
            with torch.cuda.stream(stream):
                self.graph.capture_begin(capture_error_mode="thread_local")
                self._launch(*self.inputs)
                self.graph.capture_end()
        self.graph.replay()

    def _launch(self, rows: Tensor, drawn: Tensor) -> None:
        for batch, own in zip(rows.split(self.batch_size), drawn, strict=True):
            self.move(batch, own)

    def close(self) -> None:
        """Wait until the graph may be freed."""
        if self.graph is not None:
            torch.cuda.current_stream().synchronize()


def _prepare(heads: Tensor, keys: Tensor) -> nearest.Prepared:
    """Keys for the search, in halves that can hold keys and heads."""
    ends = [end.abs() for tensor in (heads, keys) for end in torch.aminmax(tensor)]
    largest = float(torch.stack(ends).max())
    half = torch.float16 if largest < 0.5 * nearest.LARGEST_HALF else torch.float32
    return nearest.prepare(keys, 0.5 * keys.double().square().sum(dim=2), half)


def assign(heads: Tensor, keys: Tensor) -> Tensor:
    """See `dkvb.kernels.kmeans.assign`."""
    layout = _prepare(heads, keys)
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
def _write(keys, upper, lower, bias, k, key, wanted, book, last, K, P, d, D: tl.constexpr) -> Any:
    """Write keys k (len(key), D) as the search wants them, at last also as they are."""
    dim = tl.arange(0, D)
    if last:
        inside = wanted[:, None] & (dim < d)[None, :]
        tl.store(keys + (book.to(tl.int64) * K + key)[:, None] * d + dim[None, :], k, mask=inside)
    k_upper, k_lower = nearest.halves(k, upper.dtype.element_ty == tl.float16)
    at = (book.to(tl.int64) * P + key)[:, None] * D + dim[None, :]
    tl.store(upper + at, k_upper, mask=wanted[:, None])
    tl.store(lower + at, k_lower, mask=wanted[:, None])
    tl.store(bias + book.to(tl.int64) * P + key, 0.5 * tl.sum(k * k, axis=1), mask=wanted)


@triton.jit
def _smoothed(N, sum_before, n, decay, smoothing, K) -> Any:
    """Counts by Laplace's rule, given their sum before this batch of n heads."""
    total = decay * sum_before + (1.0 - decay) * n
    return (N + smoothing) * (total / (total + K * smoothing))


@triton.jit(do_not_specialize=["n"])  # compiled once, whatever n is
def _decay(
    counts,
    sums,
    keys,
    upper,
    lower,
    bias,
    total,
    n,
    last,
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
    _write(keys, upper, lower, bias, k, key, key < K, book, last, K, P, d, D)


@triton.jit(do_not_specialize=["n"])  # compiled once, whatever n is
def _attach(
    heads,
    counts,
    sums,
    keys,
    upper,
    lower,
    bias,
    total,
    codes,
    rows,
    n,
    last,
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
        h_upper, h_lower = nearest.halves(h, upper.dtype.element_ty == tl.float16)
        # 0 and 1 are exact in 16 bits, so that two products are nearly as good as float32.
        ones = same.to(h_upper.dtype)
        moved = tl.dot(ones, h_lower, acc=moved, input_precision="tf32")
        moved = tl.dot(ones, h_upper, acc=moved, input_precision="tf32")
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
    _write(keys, upper, lower, bias, k, key, leads, book, last, K, P, d, D)


@triton.jit(do_not_specialize=["n"])  # compiled once, whatever n is
def _expire(
    heads,
    counts,
    sums,
    keys,
    upper,
    lower,
    bias,
    total,
    rows,
    drawn,
    n,
    last,
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
            _write(keys, upper, lower, bias, fresh, key, taken, book, last, K, P, d, D)
            if RESET:
                dim = tl.arange(0, D)
                at = place[:, None] * d + dim[None, :]
                tl.store(sums + at, fresh, mask=taken[:, None] & (dim < d)[None, :])
                tl.store(counts + place, tl.full((KEYS,), 1.0, tl.float32), mask=taken)
                N = tl.where(taken, 1.0, N)
        sum_of_counts += tl.sum(tl.where(key < K, N, 0.0), axis=0)
    tl.store(total + book, sum_of_counts)
