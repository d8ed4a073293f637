"""Values by stochastic gradient descent: the paper's rule.

In a job of several processes each holds some codebooks: their keys, codes, values and steps are its
own, and only what a batch reads, (B, Y) sums, travels. Values may be stored in 16 bits, where
classes are many; sums and steps are float32 all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb import distributed
from dkvb._validate import one_of
from dkvb.bottleneck.values import count_usage, mean_of_fetched
from dkvb.kernels.descend import descend, pool, push, step
from dkvb.kernels.hashing import epoch_orders

ORDERS_AT_ONCE = 1 << 24  # row numbers of epochs drawn ahead: 128 MB
SCORES_AT_ONCE = 1 << 25  # numbers that are summed over processes together: 128 MB
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class SgdState:
    """What the rule knows: values, how often each pair was selected, and the epochs so far."""

    values: Tensor  # (C, K, Y) float32, bfloat16 or float16
    usage: Tensor  # (C, K) int64
    epoch: int = 0

    @property
    def active(self) -> Tensor:
        """The pairs that training has selected at least once (C, K)."""
        return self.usage > 0


def start(
    n_codebooks: int, n_pairs: int, device: torch.device | str = "cpu", dtype: str = "float32"
) -> SgdState:
    """Nothing learned, no classes yet."""
    one_of("value_dtype", dtype, DTYPES)
    shape = (n_codebooks, n_pairs)
    usage = torch.zeros(shape, dtype=torch.int64, device=device)
    return SgdState(torch.zeros((*shape, 0), device=device, dtype=DTYPES[dtype]), usage)


def grow(state: SgdState, n_columns: int) -> SgdState:
    """The same state with room for more classes; a new column starts at zero."""
    if n_columns == state.values.shape[2]:
        return state
    return replace(state, values=pad(state.values, (0, n_columns - state.values.shape[2])))


def update(
    state: SgdState,
    codes: Tensor,
    columns: Tensor,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    label_smoothing: float,
    seed: int,
) -> SgdState:
    """The state after `epochs` passes over codes (n, C) with labels in `columns` (n,).

    The order of rows is a function of the seed and of the epochs so far: k calls with one epoch
    equal one call with k. Of several processes, each gives all rows' codes of its own codebooks.
    """
    values, usage = state.values.clone(), state.usage.clone()
    n = len(codes)
    alone = distributed.world_size() == 1 and values.dtype == torch.float32
    chunk = max(1, ORDERS_AT_ONCE // n)
    for first in range(0, epochs, chunk):
        count = min(chunk, epochs - first)
        begun = state.epoch + first
        orders = epoch_orders(n, seed, begun, count, codes.device)  # (epochs, n)
        how = (batch_size, learning_rate, label_smoothing)
        if alone:
            descend(values, codes, columns, orders, *how)
        else:
            _descend_in_steps(values, codes, columns, orders, *how, first_epoch=begun)
    once = torch.zeros_like(usage)
    count_usage(once, codes)
    return SgdState(values, usage + epochs * once, state.epoch + epochs)


def _descend_in_steps(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float,
    first_epoch: int,
) -> None:
    """`descend`, with the sums of each batch taken over the codebooks of all processes."""
    n_codebooks = total_codebooks(values.shape[0])
    codes = codes.int()  # torch cannot index uint16 on every device
    for epoch, order in enumerate(orders, start=first_epoch):
        for batch, rows in enumerate(order.split(batch_size)):
            sums = distributed.sum_(pool(values, codes[rows]))  # (B, Y)
            change = step(sums, y[rows], n_codebooks, lr, smoothing)
            push(values, codes[rows], change, seed=(epoch << 32) + batch)


def scores(state: SgdState, codes: Tensor) -> Tensor:
    """Logits (n, Y): the mean over codebooks of the values fetched by codes (n, C)."""
    if distributed.world_size() == 1 and state.values.dtype == torch.float32:
        return mean_of_fetched(state.values, codes)
    n_codebooks, Y = total_codebooks(state.values.shape[0]), state.values.shape[2]
    parts = [
        distributed.sum_(pool(state.values, part)) / n_codebooks
        for part in codes.int().split(max(1, SCORES_AT_ONCE // max(1, Y)))
    ]
    return torch.cat(parts) if parts else torch.zeros((0, Y), device=state.values.device)


def total_codebooks(own: int) -> int:
    """How many codebooks all processes have together."""
    return distributed.total(own)
