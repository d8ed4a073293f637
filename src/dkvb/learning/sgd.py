"""Values by stochastic gradient descent: the paper's rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb.bottleneck.values import count_usage, mean_of_fetched
from dkvb.kernels.descend import descend
from dkvb.kernels.hashing import epoch_orders

ORDERS_AT_ONCE = 1 << 24  # row numbers of epochs drawn ahead: 128 MB


@dataclass(frozen=True, eq=False)
class SgdState:
    """What the rule knows: values, how often each pair was selected, and the epochs so far."""

    values: Tensor  # (C, K, Y) float32
    usage: Tensor  # (C, K) int64
    epoch: int = 0

    @property
    def active(self) -> Tensor:
        """The pairs that training has selected at least once (C, K)."""
        return self.usage > 0


def start(n_codebooks: int, n_pairs: int, device: torch.device | str = "cpu") -> SgdState:
    """Nothing learned, no classes yet."""
    shape = (n_codebooks, n_pairs)
    usage = torch.zeros(shape, dtype=torch.int64, device=device)
    return SgdState(torch.zeros((*shape, 0), device=device), usage)


def grow(state: SgdState, n_columns: int) -> SgdState:
    """The same state with room for more classes; a new column starts at zero."""
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
    equal one call with k.
    """
    values, usage = state.values.clone(), state.usage.clone()
    n = len(codes)
    step = max(1, ORDERS_AT_ONCE // n)
    for first in range(0, epochs, step):
        count = min(step, epochs - first)
        orders = epoch_orders(n, seed, state.epoch + first, count, codes.device)  # (epochs, n)
        descend(
            values,
            codes,
            columns,
            orders,
            batch_size=batch_size,
            lr=learning_rate,
            smoothing=label_smoothing,
        )
    once = torch.zeros_like(usage)
    count_usage(once, codes)
    return SgdState(values, usage + epochs * once, state.epoch + epochs)


def scores(state: SgdState, codes: Tensor) -> Tensor:
    """Logits (n, Y): the mean over codebooks of the values fetched by codes (n, C)."""
    return mean_of_fetched(state.values, codes)
