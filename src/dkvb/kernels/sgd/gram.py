"""SGD on values through the Gram matrix of codes, on CUDA: many epochs over the same rows.

A row adds the same step to every value that it reads. The values are therefore those at the start
plus, at the pairs of each row, the sum of that row's steps; and a step of row j changes the logits
of row i by the share of codebooks in which both have the same code. These shares, the Gram matrix
of one-hot codes, are counted once. Then a batch of SGD is a product of 256 columns of this matrix
with 256 gradients: nothing is read from or written to values until the end.

Every program owns some rows and their logits. It publishes the gradients of its rows in the batch,
waits for those of all others, and moves its logits: programs meet once in a step. All sums have a
fixed order, so that results are the same on every run.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from dkvb.kernels.sgd.oracle import pool, push

ROWS = 64  # whose logits a program keeps
THREADS = 128
# Registers of a thread: all that one run can use, and fewer to have two runs on the card together.
# A launch that the card cannot hold at once is refused by the driver.
REGISTERS = (255, 168)
BARRIER_STRIDE = 64  # int32 numbers between the counters of two runs
LARGEST_BATCH = 256
MOST_CLASSES = 32
MOST_CODEBOOKS = 2048  # whole numbers that float16 holds
# Pairs of codes that may be compared for each step: as long as that takes less than the step saves,
# on an H200. In a fixed order the direct way is slower.
COMPARISONS, COMPARISONS_IN_ORDER = 2e7, 5e8


def pays(values: Tensor, codes: Tensor, orders: Tensor, batch_size: int) -> bool:
    """Whether counting the Gram matrix first is faster than `descend` on the values themselves."""
    epochs, visited = orders.shape[-2:]
    n, C = codes.shape[-2:]
    fixed = torch.are_deterministic_algorithms_enabled()
    return (
        batch_size <= LARGEST_BATCH
        and values.shape[-1] <= MOST_CLASSES
        and C <= MOST_CODEBOOKS
        and triton.cdiv(n, ROWS)
        <= _programs(REGISTERS[0], batch_size, values.shape[-1], values.device)
        and n * n * C * batch_size
        <= (COMPARISONS_IN_ORDER if fixed else COMPARISONS) * epochs * visited
    )


def descend(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float,
) -> bool:
    """In place on values (runs, C, K, Y); False, and nothing done, if an epoch repeats a row."""
    tiles = triton.cdiv(codes.shape[1], ROWS)
    places = _places(orders, tiles * ROWS)
    if places is None:
        return False
    together = _programs(REGISTERS[-1], batch_size, values.shape[3], values.device)
    at_once = max(1, together // tiles)
    for first in range(0, len(values), at_once):
        runs = slice(first, first + at_once)
        _descend_together(
            values[runs],
            codes[runs],
            y[runs],
            orders[runs],
            places[runs],
            batch_size,
            lr,
            smoothing,
        )
    return True


def _descend_together(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    places: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float,
) -> None:
    """`descend` for as many runs as the card holds at once, one program for each tile of rows."""
    runs, C, _, Y = values.shape
    n, (epochs, visited) = codes.shape[1], orders.shape[1:]
    device, (batch, width) = values.device, _padded(batch_size, Y)
    tiles = triton.cdiv(n, ROWS)
    fit = _programs(REGISTERS[0], batch_size, Y, device) >= runs * tiles
    shared = codes.stride(0) == 0  # the same codes for all runs
    gram = gram_matrix(codes[:1] if shared else codes)
    logits = torch.zeros((runs, tiles * ROWS, width), device=device)
    for run in range(runs):
        logits[run, :n, :Y] = pool(values[run], codes[run]) / C
    steps = torch.empty_like(logits)
    _descend[(runs * tiles,)](
        gram,
        logits,
        pad(y.to(torch.int32), (0, tiles * ROWS - n)),
        orders.to(torch.int32).contiguous(),
        places,
        steps,
        torch.empty((runs, 2, 2, batch, width), dtype=torch.float16, device=device),
        torch.zeros(runs * BARRIER_STRIDE, dtype=torch.int32, device=device),
        0 if shared else gram[0].numel(),
        tiles,
        visited,
        epochs,
        Y,
        batch_size,
        lr / C,
        1.0 / C,
        1.0 - smoothing,
        smoothing / Y,
        WIDTH=width,
        BATCH=batch,
        ROWS=ROWS,
        STRIDE=BARRIER_STRIDE,
        num_warps=THREADS // 32,
        maxnreg=REGISTERS[0] if fit else REGISTERS[-1],
        launch_cooperative_grid=True,
    )
    for run in range(runs):
        push(values[run], codes[run], steps[run, :n, :Y])


def gram_matrix(codes: Tensor) -> Tensor:
    """In how many codebooks two rows of codes (runs, n, C) have the same code: (runs, n', n') uint8
    or int16, with n padded to whole tiles; zero on the diagonal and beyond n."""
    runs, n, C = codes.shape
    tiles = triton.cdiv(n, ROWS)
    columns = torch.full((runs, C, tiles * ROWS), -1, dtype=torch.int32, device=codes.device)
    columns[:, :, :n] = codes.transpose(1, 2)
    most = torch.zeros(1, dtype=torch.int32, device=codes.device)
    dtype = torch.uint8 if C <= 256 else torch.int16
    while True:
        shape = (runs, tiles * ROWS, tiles * ROWS)
        gram = torch.empty(shape, dtype=dtype, device=codes.device)
        _count[(runs, tiles, tiles)](columns, gram, most, n, C, tiles * ROWS, ROWS=ROWS)
        # Only two rows with the same 256 codes do not fit.
        if dtype == torch.int16 or int(most) <= 255:
            return gram
        dtype = torch.int16


def _places(orders: Tensor, n: int) -> Tensor | None:
    """Where each row stands in each epoch (runs, epochs, n) int32, far below zero for rows that it
    does not visit; None if an epoch visits a row twice."""
    place = torch.arange(orders.shape[2], dtype=torch.int32, device=orders.device)
    shape = (*orders.shape[:2], n)
    places = torch.full(shape, -(1 << 30), dtype=torch.int32, device=orders.device)
    for own, order in zip(places, orders, strict=True):
        own.scatter_(1, order, place.expand_as(order))
        if not bool((own.gather(1, order) == place).all()):
            return None
    return places


def _programs(registers: int, batch_size: int, n_classes: int, device: torch.device) -> int:
    """How many programs are certain to be on the card together, with so many registers a thread."""
    if device.type != "cuda":  # Triton's interpreter runs programs one after the other
        return 1
    card = torch.cuda.get_device_properties(device)
    batch, width = _padded(batch_size, n_classes)
    # The counts of a tile and the gradients of a batch, in 16 bits, and some to exchange numbers.
    shared = 2 * batch * (ROWS + 2 * width) + (5 << 10)
    each: int = min(
        card.max_threads_per_multi_processor // THREADS,
        card.regs_per_multiprocessor // (THREADS * registers),
        card.shared_memory_per_multiprocessor // shared,
    )
    return each * card.multi_processor_count


def _padded(batch_size: int, n_classes: int) -> tuple[int, int]:
    """Powers of two that tensor cores can multiply."""
    batch, width = (max(16, triton.next_power_of_2(size)) for size in (batch_size, n_classes))
    return batch, width


@triton.jit
def _count(columns, gram, most, n, C, N, ROWS: tl.constexpr) -> Any:
    """One tile of the Gram matrix, and the one that mirrors it."""
    if tl.program_id(1) > tl.program_id(2):  # symmetric: written by the other tile
        return
    run = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    columns += run * C * N
    shared = tl.zeros((ROWS, ROWS), tl.int32)
    for c in range(C):
        a = tl.load(columns + c * N + i)
        b = tl.load(columns + c * N + j)
        shared += (a[:, None] == b[None, :]).to(tl.int32)
    inside = (i[:, None] != j[None, :]) & (i < n)[:, None] & (j < n)[None, :]
    shared = tl.where(inside, shared, 0)
    tl.atomic_max(most, tl.max(tl.max(shared, axis=1), axis=0), sem="relaxed")
    gram += run * N * N
    shared = shared.to(gram.dtype.element_ty)
    tl.store(gram + i[:, None].to(tl.int64) * N + j[None, :], shared)
    tl.store(gram + j[:, None].to(tl.int64) * N + i[None, :], tl.trans(shared))


@triton.jit
def _gradient(logits, label, Y, on, off, WIDTH: tl.constexpr) -> Any:
    """Minus the gradient of each row's loss (ROWS, WIDTH)."""
    column = tl.arange(0, WIDTH)[None, :]
    logits = tl.where(column < Y, logits, float("-inf"))
    powers = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    wanted = tl.where(column == label[:, None], on + off, off)
    gradient = wanted - powers / tl.sum(powers, axis=1)[:, None]
    return tl.where(column < Y, gradient, 0.0)


@triton.jit
def _numbers(counts) -> Any:
    """Counts as float16."""
    if counts.dtype == tl.uint8:
        # The last bits of 1024: faster than a conversion.
        return (counts.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True) - 1024.0
    return counts.to(tl.float16)


@triton.jit
def arrive(arrived) -> Any:
    """Say that this program has done its part, which all others may see from now on."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release", scope="gpu")


@triton.jit
def wait(arrived, target) -> Any:
    """Wait until all programs of the run have arrived, `target` times in all."""
    while tl.atomic_add(arrived, 0, sem="acquire", scope="gpu") < target:
        pass
    tl.debug_barrier()


@triton.jit
def _publish(
    logits,
    label,
    place,
    size,
    published,
    BATCH: tl.constexpr,
    Y,
    rate,
    on,
    off,
    WIDTH: tl.constexpr,
) -> Any:
    """Publish the gradients of rows whose place in the batch is 0 to `size` − 1, in halves; returns
    these rows' steps, zero for others."""
    column = tl.arange(0, WIDTH)[None, :]
    chosen = ((place >= 0) & (place < size))[:, None]
    gradient = _gradient(logits, label, Y, on, off, WIDTH)
    high = gradient.to(tl.float16)
    low = ((gradient - high.to(tl.float32)) * 2048.0).to(tl.float16)
    at = published + place[:, None] * WIDTH + column
    tl.store(at, high, mask=chosen)
    tl.store(at + BATCH * WIDTH, low, mask=chosen)
    return tl.where(chosen, gradient * (rate / tl.maximum(size, 1)), 0.0)


# Whatever the number of rows and epochs, compiled once.
@triton.jit(do_not_specialize=["tiles", "visited", "epochs"])
def _descend(
    gram,
    logits,
    labels,
    orders,
    places,
    steps,
    published,
    arrived,
    gram_stride,
    tiles,
    visited,
    epochs,
    Y,
    batch,
    rate,
    share,
    on,
    off,
    WIDTH: tl.constexpr,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    STRIDE: tl.constexpr,
) -> Any:
    run = (tl.program_id(0) // tiles).to(tl.int64)
    N = tiles * ROWS
    gram += run * gram_stride
    orders += run * epochs * visited
    places += run * epochs * N
    published += run * 4 * BATCH * WIDTH  # upper and lower halves, of two steps
    arrived += run * STRIDE
    column = tl.arange(0, WIDTH)[None, :]
    k = tl.arange(0, BATCH)
    own = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    at = (run * N + own)[:, None] * WIDTH + column
    label = tl.load(labels + run * N + own)
    z = tl.load(logits + at)
    per_epoch = (visited + batch - 1) // batch
    total = epochs * per_epoch
    size = tl.minimum(batch, visited)
    row = tl.load(orders + k, mask=k < size, other=0).to(tl.int64)
    place = tl.load(places + own)
    taken = _publish(z, label, place, size, published, BATCH, Y, rate, on, off, WIDTH)
    z += taken
    arrive(arrived)
    for s in range(total):
        # What does not depend on the gradients of the others is loaded while they arrive.
        counts = _numbers(tl.load(gram + row[None, :] * N + own[:, None]))  # (ROWS, BATCH)
        following = tl.zeros((), tl.int32) + s + 1
        epoch = (following // per_epoch).to(tl.int64)
        start = following % per_epoch * batch
        more = following < total
        next_size = tl.where(more, tl.minimum(batch, visited - start), 0)
        next_row = tl.load(orders + epoch * visited + start + k, mask=k < next_size, other=0)
        place = tl.load(places + tl.where(more, epoch, 0) * N + own) - start
        wait(arrived, (s + 1) * tiles)
        heard = published + (s % 2) * 2 * BATCH * WIDTH + k[:, None] * WIDTH + column
        there = (k < size)[:, None]
        # .cg: other programs write these, so nothing may come from this one's L1.
        upper = tl.load(heard, mask=there, other=0.0, cache_modifier=".cg")  # (BATCH, WIDTH)
        lower = tl.load(heard + BATCH * WIDTH, mask=there, other=0.0, cache_modifier=".cg")
        moved = tl.dot(counts, upper) + tl.dot(counts, lower) * (1.0 / 2048.0)
        z += moved * (rate / size * share)
        target = published + (s + 1) % 2 * 2 * BATCH * WIDTH
        step = _publish(z, label, place, next_size, target, BATCH, Y, rate, on, off, WIDTH)
        arrive(arrived)
        z += step
        taken += step
        row = next_row.to(tl.int64)
        size = next_size
    tl.store(steps + at, taken)
