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

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import process_group
from dkvb._support.hashing import epoch_orders
from dkvb.kernels.sgd import epochs_on, pool, push, step

ORDERS_AT_ONCE = 1 << 24  # row numbers of epochs drawn ahead: 128 MB
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class SgdState:
    """What the rule knows: values, how often each pair was selected, and the epochs so far."""

    columns: Tensor  # (C, K, Y) float32, bfloat16 or float16; with the unseen-class column, Y + 1
    usage: Tensor  # (C, K) int64
    epoch: int = 0
    unseen: bool = False  # whether the last column stands for all classes yet to come

    @property
    def n_classes(self) -> int:
        return self.columns.shape[2] - self.unseen

    @property
    def values(self) -> Tensor:
        """Those of classes (C, K, Y)."""
        return self.columns[:, :, : self.n_classes]

    @property
    def active(self) -> Tensor:
        """The pairs that training has selected at least once (C, K)."""
        return self.usage > 0

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # the rest can be found again


def start(
    n_codebooks: int,
    n_pairs: int,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
    unseen: bool = False,
) -> SgdState:
    """Nothing learned, no classes yet."""
    shape = (n_codebooks, n_pairs)
    usage = torch.zeros(shape, dtype=torch.int64, device=device)
    columns = torch.zeros((*shape, int(unseen)), device=device, dtype=DTYPES[dtype])
    return SgdState(columns, usage, unseen=unseen)


def grow(state: SgdState, n_classes: int) -> SgdState:
    """The same state with more classes."""
    columns, unseen = state.columns, state.unseen
    known = columns.shape[2] - unseen
    new = n_classes - known
    if new == 0:
        return state
    if known == 0 and not unseen:
        return replace(state, columns=pad(columns, (0, new)))
    # Without a column for unseen classes, the lowest value of a pair is that of a class never seen
    # there, if any is.
    fresh = columns[:, :, -1] if unseen else columns.amin(dim=2)
    parts = [columns[:, :, :known], fresh[:, :, None].expand(-1, -1, new + unseen)]
    return replace(state, columns=torch.cat(parts, dim=2))


def update(
    state: SgdState,
    codes: Tensor,
    class_index: Tensor,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    label_smoothing: float,
    seed: int,
    n_codebooks: int | None = None,
) -> SgdState:
    """The state after `epochs` passes over codes (n, C) of classes (n,).

    The order of rows is a function of the seed and of the epochs so far: k calls with one epoch
    equal one call with k. Of several processes, each gives all rows' codes of its own codebooks,
    out of `n_codebooks` in all.
    """
    values, usage = state.columns.clone(), state.usage
    (C, K), n = usage.shape, len(codes)
    n_codebooks = n_codebooks or len(values)
    alone = n_codebooks == len(values) and values.dtype == torch.float32
    chunk = max(1, ORDERS_AT_ONCE // n)
    for first in range(0, epochs, chunk):
        count = min(chunk, epochs - first)
        begun = state.epoch + first
        orders = epoch_orders(n, seed, begun, count, codes.device)  # (epochs, n)
        how = (batch_size, learning_rate, label_smoothing)
        if alone:
            epochs_on(values.device).descend(values, codes, class_index, orders, *how)
        else:
            _descend_in_steps(values, codes, class_index, orders, *how, begun, n_codebooks)
    places = codes.long() + torch.arange(C, device=codes.device) * K
    once = torch.bincount(places.flatten(), minlength=C * K).view(C, K)
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
    n_codebooks: int,
) -> None:
    """`descend`, with the sums of each batch taken over the codebooks of all processes."""
    sharded = n_codebooks > len(values)
    codes = codes.int()  # torch cannot index uint16 on every device
    for epoch, order in enumerate(orders, start=first_epoch):
        for batch, rows in enumerate(order.split(batch_size)):
            sums = pool(values, codes[rows])  # (B, Y)
            sums = process_group.all_reduce(sums) if sharded else sums
            change = step(sums, y[rows], n_codebooks, lr, smoothing)
            push(values, codes[rows], change, seed=(epoch << 32) + batch)
