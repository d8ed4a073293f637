"""Values by stochastic gradient descent: the paper's rule.

In a job of several processes each holds some codebooks: their keys, codes, values and steps are its
own, and only what a batch reads, (B, Y) sums, travels. Values may be stored in 16 bits, where
classes are many; sums and steps are float32 all the same.

A class that is learned late must not start ahead of those that were pushed back wherever others
were right. Where not all classes were declared when learning began, a further column stands for
every class that is yet to come: it learns as one that never is right, and a new class starts as its
copy. Steps move differences between columns, and these hardly depend on how many columns there are,
so that a class learned so ends about where it would have, had it been declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import process_group
from dkvb._support.hashing import epoch_orders
from dkvb._support.validation import one_of
from dkvb.bottleneck.values import count_usage, mean_of_fetched
from dkvb.kernels.sgd import descend, pool, push, step

ORDERS_AT_ONCE = 1 << 24  # row numbers of epochs drawn ahead: 128 MB
SCORES_AT_ONCE = 1 << 25  # numbers that are summed over processes together: 128 MB
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class SgdState:
    """What the rule knows: values, how often each pair was selected, and the epochs so far."""

    columns: Tensor  # (C, K, Y) float32, bfloat16 or float16; with the reserve, Y + 1
    usage: Tensor  # (C, K) int64
    epoch: int = 0
    reserve: bool = False  # whether the last column stands for all classes yet to come

    @property
    def n_classes(self) -> int:
        return self.columns.shape[2] - self.reserve

    @property
    def values(self) -> Tensor:
        """Those of classes (C, K, Y)."""
        return self.columns[:, :, : self.n_classes]

    @property
    def active(self) -> Tensor:
        """The pairs that training has selected at least once (C, K)."""
        return self.usage > 0


def start(
    n_codebooks: int,
    n_pairs: int,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
    reserve: bool = False,
) -> SgdState:
    """Nothing learned, no classes yet."""
    one_of("value_dtype", dtype, DTYPES)
    shape = (n_codebooks, n_pairs)
    usage = torch.zeros(shape, dtype=torch.int64, device=device)
    columns = torch.zeros((*shape, int(reserve)), device=device, dtype=DTYPES[dtype])
    return SgdState(columns, usage, reserve=reserve)


def grow(state: SgdState, n_classes: int) -> SgdState:
    """The same state with room for more classes."""
    new = n_classes - state.n_classes
    if new == 0:
        return state
    if state.n_classes == 0 and not state.reserve:
        return replace(state, columns=pad(state.columns, (0, new)))
    # Without a reserve, the lowest value of a pair is that of a class never seen there, if any is.
    fresh = state.columns[:, :, -1] if state.reserve else state.columns.amin(dim=2)
    parts = [state.values, fresh[:, :, None].expand(-1, -1, new + state.reserve)]
    return replace(state, columns=torch.cat(parts, dim=2))


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
    values, usage = state.columns.clone(), state.usage.clone()
    n = len(codes)
    alone = process_group.world_size() == 1 and values.dtype == torch.float32
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
    usage = usage + epochs * once
    return replace(state, columns=values, usage=usage, epoch=state.epoch + epochs)


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
            sums = process_group.all_reduce(pool(values, codes[rows]))  # (B, Y)
            change = step(sums, y[rows], n_codebooks, lr, smoothing)
            push(values, codes[rows], change, seed=(epoch << 32) + batch)


def scores(state: SgdState, codes: Tensor) -> Tensor:
    """Logits (n, Y): the mean over codebooks of the values fetched by codes (n, C)."""
    columns = state.columns
    if process_group.world_size() == 1 and columns.dtype == torch.float32:
        return mean_of_fetched(columns, codes)[:, : state.n_classes]
    n_codebooks, width = total_codebooks(columns.shape[0]), columns.shape[2]
    parts = [
        process_group.all_reduce(pool(columns, part)) / n_codebooks
        for part in codes.int().split(max(1, SCORES_AT_ONCE // max(1, width)))
    ]
    every = torch.cat(parts) if parts else torch.zeros((0, width), device=columns.device)
    return every[:, : state.n_classes]


def total_codebooks(own: int) -> int:
    """How many codebooks all processes have together."""
    return process_group.all_reduce_int(own)
