"""Values by stochastic gradient descent, as in the paper.

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
from torch.nn.functional import embedding_bag, pad

from dkvb.bottleneck.values import flat_codes
from dkvb.kernels.hashing import epoch_orders
from dkvb.kernels.sgd import epochs_on, pool, push, step

ORDERS_AT_ONCE = 1 << 24  # row numbers of epochs drawn ahead: 128 MB
SCORES_AT_ONCE = 1 << 25  # logits that are pooled from 16-bit values at a time: 128 MB
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class LearnedValues:
    """Values, how often learning selected each pair, and the epochs so far; never changed."""

    columns: Tensor  # (C, K, Y) float32, bfloat16 or float16; with the unseen-class column, Y + 1
    usage: Tensor  # (C, K) int64
    epoch: int = 0
    unseen: bool = False  # True if the last column stands for all classes yet to come

    @property
    def n_classes(self) -> int:
        return self.columns.shape[2] - self.unseen

    @property
    def values(self) -> Tensor:
        """Values of the classes (C, K, Y)."""
        return self.columns[:, :, : self.n_classes]

    @property
    def active(self) -> Tensor:
        """True (C, K) for pairs that learning has selected at least once."""
        return self.usage > 0

    def __deepcopy__(self, memo: dict[int, object]) -> LearnedValues:
        return self  # immutable

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # caches are made again


def start(
    n_codebooks: int,
    n_pairs: int,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
    unseen: bool = False,
) -> LearnedValues:
    """Return the values of a model that has learned nothing and has no classes yet."""
    shape = (n_codebooks, n_pairs)
    usage = torch.zeros(shape, dtype=torch.int64, device=device)
    columns = torch.zeros((*shape, int(unseen)), device=device, dtype=DTYPES[dtype])
    return LearnedValues(columns, usage, unseen=unseen)


def add_classes(learned: LearnedValues, n_classes: int) -> LearnedValues:
    """Return the values with columns for `n_classes` classes."""
    columns, unseen = learned.columns, learned.unseen
    known = learned.n_classes
    new = n_classes - known
    if new == 0:
        return learned
    if known == 0 and not unseen:
        return replace(learned, columns=pad(columns, (0, new)))
    # Without a column for unseen classes, the lowest value of a pair is that of a class never seen
    # there, if any is.
    fresh = columns[:, :, -1] if unseen else columns.amin(dim=2)
    parts = [columns[:, :, :known], fresh[:, :, None].expand(-1, -1, new + unseen)]
    return replace(learned, columns=torch.cat(parts, dim=2))


def add_pairs(learned: LearnedValues, n_pairs: int) -> LearnedValues:
    """Return the values with pairs that nothing has selected yet, `n_pairs` per codebook in all."""
    new = n_pairs - learned.columns.shape[1]
    columns, usage = pad(learned.columns, (0, 0, 0, new)), pad(learned.usage, (0, new))
    return replace(learned, columns=columns, usage=usage)


def update(
    learned: LearnedValues,
    codes: Tensor,
    class_index: Tensor,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    label_smoothing: float,
    seed: int,
) -> LearnedValues:
    """Return the values after `epochs` passes over codes (n, C) of classes (n,).

    The order of rows is a function of the seed and of the epochs so far: k calls with one epoch
    equal one call with k.
    """
    values, n = learned.columns.clone(), len(codes)
    chunk = max(1, ORDERS_AT_ONCE // n)
    for first in range(0, epochs, chunk):
        begun = learned.epoch + first
        count = min(chunk, epochs - first)
        orders = epoch_orders(n, seed, begun, count, codes.device)  # (epochs, n)
        settings = (batch_size, learning_rate, label_smoothing)
        if values.dtype == torch.float32:
            epochs_on(values.device).descend(values, codes, class_index, orders, *settings)
        else:
            _descend_in_steps(values, codes, class_index, orders, *settings, begun)
    pairs = flat_codes(codes, values.shape[1])
    once = torch.bincount(pairs.flatten(), minlength=learned.usage.numel())
    usage = learned.usage + epochs * once.view_as(learned.usage)
    return replace(learned, columns=values, usage=usage, epoch=learned.epoch + epochs)


def _descend_in_steps(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    learning_rate: float,
    label_smoothing: float,
    first_epoch: int,
) -> None:
    """Do what `descend` does to 16-bit values, whose sums and steps are float32."""
    codes = codes.int()  # torch cannot index uint16 on every device
    for epoch, order in enumerate(orders, start=first_epoch):
        for batch, rows in enumerate(order.split(batch_size)):
            sums = pool(values, codes[rows])  # (B, Y)
            change = step(sums, y[rows], len(values), learning_rate, label_smoothing)
            push(values, codes[rows], change, seed=(epoch << 32) + batch)


def logits(learned: LearnedValues, codes: Tensor) -> Tensor:
    """Return logits (n, Y): the mean over codebooks of the values fetched by codes (n, C)."""
    columns = learned.columns
    C, K, width = columns.shape
    if columns.dtype == torch.float32:
        pooled = embedding_bag(flat_codes(codes, K), columns.flatten(0, 1), mode="mean")
        return pooled[:, : learned.n_classes]
    pooled = torch.zeros((len(codes), width), device=columns.device)
    at_once = max(1, SCORES_AT_ONCE // max(1, width))
    for first in range(0, len(codes), at_once):
        part = slice(first, first + at_once)
        pooled[part] = pool(columns, codes[part].int()) / C
    return pooled[:, : learned.n_classes]
