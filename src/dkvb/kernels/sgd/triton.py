"""SGD on values on CUDA: whole epochs in one launch, many runs side by side.

A run is a group of programs that stay on the card for all steps. Step by step each program fetches
and decodes its rows of the batch; when all of the group have read, each adds its rows' gradients to
the values they fetched; when all have written, the next batch begins. Nothing goes back to Python.

Many epochs over few rows are learned through the Gram matrix of their codes instead, see `gram`.

Rows of a batch that share a pair add to the same value. By default they do so by atomic additions,
in no fixed order. With `torch.use_deterministic_algorithms(True)` a program owns some codebooks
instead and adds up the rows of each pair in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dkvb.kernels.sgd import gram

TILE = 4096  # values that a program fetches at once
# Registers of a thread, so that a processor holds many programs: they wait for memory most of the
# time. A launch that the card cannot hold at once is refused by the driver.
REGISTERS = 64
THREADS = 128
BARRIER_STRIDE = 64  # int32 numbers between the counters of two runs


def descend(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float,
) -> None:
    """In place on values (C, K, Y), or (runs, C, K, Y) with a leading dimension everywhere."""
    if values.ndim == 3:
        descend(values[None], codes[None], y[None], orders[None], batch_size, lr, smoothing)
        return
    if gram.pays(values, codes, orders, batch_size) and gram.descend(
        values, codes, y, orders, batch_size, lr, smoothing
    ):
        return
    at_once = _runs_at_once(values)
    for first in range(0, len(values), at_once):
        runs = slice(first, first + at_once)
        _descend_together(
            values[runs], codes[runs], y[runs], orders[runs], batch_size, lr, smoothing
        )


def _runs_at_once(values: Tensor) -> int:
    """How many runs to train together: they wait for each other's memory where their values are
    much larger than the cache."""
    if not values.is_cuda:
        return len(values)
    cache = torch.cuda.get_device_properties(values.device).L2_cache_size
    return max(1, 2 * cache // values[0].nbytes)


def _descend_together(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float,
) -> None:
    runs, C, K, Y = values.shape
    epochs, n = orders.shape[1:]
    width = max(16, triton.next_power_of_2(Y))
    line = -(-Y // 4) * 4  # values of a pair lie at multiples of 16 bytes
    aligned = line == Y and values.is_contiguous()  # many classes: no second table
    padded = values if aligned else torch.nn.functional.pad(values, (0, line - Y))
    deterministic = torch.are_deterministic_algorithms_enabled()
    registers = None if deterministic else REGISTERS  # a sum in a fixed order takes more
    programs = _programs_a_run(runs, min(batch_size, n), registers or 128, values.device)
    books = max(1, min(triton.next_power_of_2(C), TILE // width))
    arrived = torch.zeros(runs * BARRIER_STRIDE, dtype=torch.int32, device=values.device)
    gradients = torch.empty((runs, batch_size, width), dtype=torch.float32, device=values.device)
    _descend[(runs * programs,)](
        padded,
        codes.contiguous(),
        y.to(torch.int32).contiguous(),
        orders.to(torch.int32).contiguous(),
        gradients,
        arrived,
        codes.shape[1],
        n,
        epochs,
        C,
        K,
        Y,
        batch_size,
        lr / C,
        1.0 - smoothing,
        smoothing / Y,
        PROGRAMS=programs,
        WIDTH=width,
        LINE=line,
        BOOKS=books,
        BATCH=max(16, triton.next_power_of_2(batch_size)),
        ROWS=min(64, max(16, triton.next_power_of_2(batch_size))),
        CLASS_STRIDE=min(64, width),
        ONE_ROW=programs >= min(batch_size, n) and books >= C and not deterministic,
        DETERMINISTIC=deterministic,
        STRIDE=BARRIER_STRIDE,
        num_warps=THREADS // 32,
        maxnreg=registers,
        launch_cooperative_grid=True,
    )
    if not aligned:
        values.copy_(padded[..., :Y])


def _programs_a_run(runs: int, batch: int, registers: int, device: torch.device) -> int:
    """As many programs as are certain to be on the card together, and no more than rows."""
    if device.type != "cuda":  # Triton's interpreter runs programs one after the other
        return 1
    card = torch.cuda.get_device_properties(device)
    threads = min(card.max_threads_per_multi_processor, card.regs_per_multiprocessor // registers)
    return max(1, min(threads // THREADS * card.multi_processor_count // runs, batch))


@triton.jit
def _step(total, label, C, Y, rate, on, off, WIDTH: tl.constexpr) -> Any:
    """What a row adds to each value it fetched, from the sum of these (WIDTH,)."""
    column = tl.arange(0, WIDTH)
    logits = tl.where(column < Y, total / C, float("-inf"))
    powers = tl.exp(logits - tl.max(logits, axis=0))
    wanted = tl.where(column == label, on + off, off)
    step = (wanted - powers / tl.sum(powers, axis=0)) * rate
    return tl.where(column < Y, step, 0.0)


@triton.jit(do_not_specialize=["rows", "n", "epochs"])  # compiled once, whatever these are
def _descend(
    values,
    codes,
    labels,
    orders,
    gradients,
    arrived,
    rows,
    n,
    epochs,
    C,
    K,
    Y,
    batch,
    rate,
    on,
    off,
    PROGRAMS: tl.constexpr,
    WIDTH: tl.constexpr,
    LINE: tl.constexpr,
    BOOKS: tl.constexpr,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    CLASS_STRIDE: tl.constexpr,
    ONE_ROW: tl.constexpr,
    DETERMINISTIC: tl.constexpr,
    STRIDE: tl.constexpr,
) -> Any:
    run = (tl.program_id(0) // PROGRAMS).to(tl.int64)
    worker = tl.program_id(0) % PROGRAMS
    values += run * C * K * LINE
    codes += run * rows * C
    labels += run * rows
    orders += run * epochs * n
    gradients += run * batch * WIDTH
    arrived += run * STRIDE
    column = tl.arange(0, WIDTH)
    book = tl.arange(0, BOOKS)
    target = 0
    # With one row a program, its codes stay in registers and the next row's are loaded while others
    # arrive.
    row = tl.load(orders + worker, mask=worker < n, other=0).to(tl.int64)
    code = tl.load(codes + row * C + book, mask=book < C, other=0)
    label = tl.load(labels + row)
    total = tl.zeros((WIDTH,), tl.float32)
    step = tl.zeros((WIDTH,), tl.float32)
    for epoch in range(epochs):
        for start in range(0, n, batch):
            size = tl.minimum(batch, n - start)
            for r in range(worker, size, PROGRAMS):
                if not ONE_ROW:
                    row = tl.load(orders + start + r).to(tl.int64)
                total = tl.zeros((WIDTH,), tl.float32)
                for first in range(0, C, BOOKS):
                    there = first + book < C
                    if not ONE_ROW:
                        code = tl.load(codes + row * C + first + book, mask=there, other=0)
                    place = ((first + book) * K + code.to(tl.int32)).to(tl.int64) * LINE
                    # .cg: other programs write values, so nothing may come from this one's L1.
                    fetched = tl.load(
                        values + place[:, None] + column[None, :],
                        mask=there[:, None] & (column < LINE)[None, :],
                        other=0.0,
                        cache_modifier=".cg",
                    )  # (BOOKS, WIDTH)
                    total += tl.sum(fetched, axis=0)
                if not ONE_ROW:
                    label = tl.load(labels + row)
                    step = _step(total, label, C, Y, rate / size, on, off, WIDTH)
                    tl.store(gradients + r * WIDTH + column, step)
            gram.arrive(arrived)
            if ONE_ROW:
                step = _step(total, label, C, Y, rate / size, on, off, WIDTH)
            target += PROGRAMS
            gram.wait(arrived, target)
            if DETERMINISTIC:
                _add_in_order(
                    values, codes, orders + start, gradients, worker, size, C, K,
                    PROGRAMS, WIDTH, LINE, BATCH, ROWS, CLASS_STRIDE,
                )  # fmt: skip
            else:
                for r in range(worker, size, PROGRAMS):
                    if not ONE_ROW:
                        row = tl.load(orders + start + r).to(tl.int64)
                        step = tl.load(gradients + r * WIDTH + column)
                    for first in range(0, C, BOOKS):
                        there = first + book < C
                        if not ONE_ROW:
                            code = tl.load(codes + row * C + first + book, mask=there, other=0)
                        place = ((first + book) * K + code.to(tl.int32)).to(tl.int64) * LINE
                        # No mask finer than four columns, so that four are added at once.
                        tl.atomic_add(
                            values + place[:, None] + column[None, :],
                            tl.broadcast_to(step[None, :], (BOOKS, WIDTH)),
                            mask=there[:, None] & (column < LINE)[None, :],
                            sem="relaxed",
                        )
            gram.arrive(arrived)
            if ONE_ROW:
                following = start + batch
                ends = following >= n
                left = tl.where(ends, n, n - following)
                more = (worker < tl.minimum(batch, left)) & ((epoch + 1 < epochs) | (following < n))
                ahead = orders + tl.where(ends, n, following) + worker
                row = tl.load(ahead, mask=more, other=0).to(tl.int64)
                code = tl.load(codes + row * C + book, mask=book < C, other=0)
                label = tl.load(labels + row)
            target += PROGRAMS
            gram.wait(arrived, target)
        orders += n


@triton.jit
def _add_in_order(
    values,
    codes,
    rows,
    gradients,
    worker,
    size,
    C,
    K,
    PROGRAMS: tl.constexpr,
    WIDTH: tl.constexpr,
    LINE: tl.constexpr,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    CLASS_STRIDE: tl.constexpr,
) -> Any:
    """Codebook by codebook, the first row of each pair adds the sum of all rows of that pair."""
    other = tl.arange(0, BATCH)
    row_of_other = tl.load(rows + other, mask=other < size, other=0).to(tl.int64)
    for c in range(worker, C, PROGRAMS):
        theirs = tl.load(codes + row_of_other * C + c, mask=other < size, other=0).to(tl.int32)
        for first in range(0, size, ROWS):
            r = first + tl.arange(0, ROWS)
            row = tl.load(rows + r, mask=r < size, other=0).to(tl.int64)
            own = tl.load(codes + row * C + c, mask=r < size, other=0).to(tl.int32)
            same = (own[:, None] == theirs[None, :]) & (other < size)[None, :]  # (ROWS, BATCH)
            earlier = tl.sum((same & (other[None, :] < r[:, None])).to(tl.int32), axis=1)
            leads = (earlier == 0) & (r < size)
            place = (c * K + own).to(tl.int64) * LINE
            for left in range(0, WIDTH, CLASS_STRIDE):
                column = left + tl.arange(0, CLASS_STRIDE)
                steps = tl.load(
                    gradients + other[:, None] * WIDTH + column[None, :],
                    mask=(other < size)[:, None],
                    other=0.0,
                    cache_modifier=".cg",
                )  # (BATCH, CLASS_STRIDE)
                at = values + place[:, None] + column[None, :]
                kept = leads[:, None] & (column < LINE)[None, :]
                old = tl.load(at, mask=kept, other=0.0, cache_modifier=".cg")
                total = tl.dot(same.to(tl.float32), steps, input_precision="tf32x3")
                tl.store(at, old + total, mask=kept)
