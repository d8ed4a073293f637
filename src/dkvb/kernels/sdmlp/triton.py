"""The step of SDMLP on CUDA: a neuron without a gradient is neither read nor written again.

Three kernels follow the matrix products. `_compete` finds the (k + 1)-th largest activation of each
input and subtracts it. `_backward` computes the gradient that arrives at each neuron, that of its
outputs, and the squares of both; the norm of the first layer's gradient xᵀ·into follows from the
inner products of inputs, without the gradient itself. `_descend` has one program per neuron, which
adds up the inputs of its gradient, takes the clipped step and projects.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

NEURONS = 64  # of one program of `_backward`


def step(
    neurons: Tensor,
    output: Tensor,
    answered: Tensor,
    x: Tensor,
    wanted: Tensor,
    rate: Tensor,
    k: int,
    switch_after: int,
    max_norm: float,
) -> None:
    """Take one step; see `dkvb.kernels.sdmlp.step`."""
    runs, b, m = x.shape
    n, classes = output.shape[1:]
    if neurons.stride()[1:] != (1, m):
        raise ValueError(
            f"neurons: expected the {m} weights of a neuron side by side in memory; got strides "
            f"{neurons.stride()}"
        )
    before = torch.bmm(x, neurons)  # (R, b, N)
    active = torch.empty_like(before)
    _compete[(b, runs)](
        before,
        answered,
        active,
        n,
        b,
        float(switch_after),
        RANK=k + 1,
        WIDTH=triton.next_power_of_2(n),
        num_warps=16 if n > 4096 else 4,
    )
    logits, products = torch.bmm(active, output), torch.bmm(x, x.transpose(1, 2))
    blocks = triton.cdiv(n, NEURONS)
    into, slopes = before.new_empty((runs, n, b)), torch.empty_like(output)
    squares = before.new_empty((runs, blocks))
    exact = torch.get_float32_matmul_precision() == "highest"
    _backward[(blocks, runs)](
        before,
        active,
        logits,
        wanted,
        output,
        products,
        answered,
        into,
        slopes,
        squares,
        n,
        b,
        classes,
        switch_after,
        NEURONS=NEURONS,
        BATCH=max(16, triton.next_power_of_2(b)),
        CLASSES=max(16, triton.next_power_of_2(classes)),
        PRECISION="ieee" if exact else "tf32",
        num_warps=8,
    )
    _descend[(n, runs)](
        neurons,
        output,
        x,
        into,
        slopes,
        squares,
        rate,
        n,
        b,
        m,
        classes,
        blocks,
        max_norm,
        neurons.stride(0),
        BATCH=triton.next_power_of_2(b),
        INPUTS=triton.next_power_of_2(m),
        CLASSES=triton.next_power_of_2(classes),
        BLOCKS=triton.next_power_of_2(blocks),
        num_warps=4,
    )


@triton.jit
def _compete(
    before, answered, active, n, b, switch_after, RANK: tl.constexpr, WIDTH: tl.constexpr
) -> None:
    run = tl.program_id(1)
    row = (run * b + tl.program_id(0)).to(tl.int64) * n
    column = tl.arange(0, WIDTH)
    excited = tl.maximum(tl.load(before + row + column, mask=column < n, other=0.0), 0.0)
    left = tl.where(column < n, excited, -1.0)
    runner_up = 0.0
    for _ in range(RANK):
        runner_up, where = tl.max(left, axis=0, return_indices=True)
        left = tl.where(column == where, -1.0, left)
    count = tl.load(answered + run * n + column, mask=column < n, other=0.0)
    # Divided as IEEE says: a switch just below 1 would leave the runner-up active.
    switch = tl.div_rn(2.0 * count, switch_after) - 1.0
    tl.store(active + row + column, tl.maximum(excited - switch * runner_up, 0.0), mask=column < n)


@triton.jit
def _backward(
    before,
    active,
    logits,
    wanted,
    output,
    products,
    answered,
    into,
    slopes,
    squares,
    n,
    b,
    classes,
    switch_after,
    NEURONS: tl.constexpr,
    BATCH: tl.constexpr,
    CLASSES: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    run = tl.program_id(1)
    neuron = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    sample, column = tl.arange(0, BATCH), tl.arange(0, CLASSES)
    is_class = (sample[:, None] < b) & (column[None, :] < classes)
    at = run * b * classes + sample[:, None] * classes + column[None, :]
    scores = tl.load(logits + at, mask=is_class, other=-1e30)
    powers = tl.where(is_class, tl.exp(scores - tl.max(scores, axis=1)[:, None]), 0.0)
    total = tl.where(sample < b, tl.sum(powers, axis=1), 1.0)
    error = (powers / total[:, None] - tl.load(wanted + at, mask=is_class, other=0.0)) / b

    is_neuron = (sample[:, None] < b) & (neuron[None, :] < n)
    place = (run * b + sample[:, None]).to(tl.int64) * n + neuron[None, :]
    answer = tl.load(active + place, mask=is_neuron, other=0.0)  # (BATCH, NEURONS)
    seen = tl.sum((answer > 0).to(tl.float32), axis=0)
    counts = answered + run * n + neuron
    count = tl.load(counts, mask=neuron < n, other=0.0)
    tl.store(counts, tl.minimum(count + seen, switch_after), mask=neuron < n)

    is_weight = (neuron[:, None] < n) & (column[None, :] < classes)
    weight_at = (run * n + neuron[:, None]).to(tl.int64) * classes + column[None, :]
    weights = tl.load(output + weight_at, mask=is_weight, other=0.0)  # (NEURONS, CLASSES)
    slope = tl.dot(tl.trans(answer), error, input_precision=PRECISION)
    tl.store(slopes + weight_at, slope, mask=is_weight)

    follows = (answer > 0) & (tl.load(before + place, mask=is_neuron, other=0.0) > 0)
    signal = tl.dot(weights, tl.trans(error), input_precision=PRECISION)  # (NEURONS, BATCH)
    signal = tl.where(tl.trans(follows.to(tl.int32)) != 0, signal, 0.0)
    into_at = (run * n + neuron[:, None]).to(tl.int64) * b + sample[None, :]
    tl.store(into + into_at, signal, mask=(neuron[:, None] < n) & (sample[None, :] < b))

    inner_at = (run * b + sample[:, None]) * b + sample[None, :]
    is_pair = (sample[:, None] < b) & (sample[None, :] < b)
    inner = tl.load(products + inner_at, mask=is_pair, other=0.0)  # (BATCH, BATCH)
    square = tl.sum(tl.dot(signal, inner, input_precision=PRECISION) * signal)
    square += tl.sum(tl.where(is_weight, slope * slope, 0.0))
    tl.store(squares + run * tl.num_programs(0) + tl.program_id(0), square)


@triton.jit
def _descend(
    neurons,
    output,
    x,
    into,
    slopes,
    squares,
    rate,
    n,
    b,
    m,
    classes,
    blocks,
    max_norm,
    run_stride,
    BATCH: tl.constexpr,
    INPUTS: tl.constexpr,
    CLASSES: tl.constexpr,
    BLOCKS: tl.constexpr,
) -> None:
    run, neuron = tl.program_id(1), tl.program_id(0)
    block, column, sample = tl.arange(0, BLOCKS), tl.arange(0, CLASSES), tl.arange(0, BATCH)
    square = tl.load(squares + run * blocks + block, mask=block < blocks, other=0.0)
    norm = tl.sqrt(tl.maximum(tl.sum(square), 0.0))
    change = tl.load(rate + run) * tl.minimum(max_norm / (norm + 1e-6), 1.0)

    at = (run * n + neuron).to(tl.int64) * classes + column
    slope = tl.load(slopes + at, mask=column < classes, other=0.0)
    weight = tl.load(output + at, mask=column < classes, other=0.0)
    tl.store(output + at, tl.maximum(weight - change * slope, 0.0), mask=column < classes)

    signals = into + (run * n + neuron).to(tl.int64) * b
    signal = tl.load(signals + sample, mask=sample < b, other=0.0)
    if tl.max(tl.abs(signal)) > 0:
        feature = tl.arange(0, INPUTS)
        is_feature = feature < m
        gradient = tl.zeros((INPUTS,), dtype=tl.float32)
        for i in range(b):
            one = tl.load(signals + i)
            if one != 0:
                rows = x + (run * b + i).to(tl.int64) * m
                gradient += one * tl.load(rows + feature, mask=is_feature, other=0.0)
        own = neurons + run.to(tl.int64) * run_stride + neuron.to(tl.int64) * m + feature
        moved = tl.load(own, mask=is_feature, other=0.0) - change * gradient
        moved = tl.maximum(moved, 0.0)
        length = tl.maximum(tl.sqrt(tl.sum(moved * moved)), 1e-12)
        tl.store(own, moved / length, mask=is_feature)
