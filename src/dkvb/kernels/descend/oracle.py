"""SGD on values, the obvious way; see `dkvb.kernels.descend`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def descend(
    values: Tensor,
    codes: Tensor,
    y: Tensor,
    orders: Tensor,
    batch_size: int,
    lr: float,
    smoothing: float = 0.0,
) -> None:
    """Change values (C, K, Y) in place by SGD over whole epochs."""
    n_codebooks, _, n_columns = values.shape
    books = torch.arange(n_codebooks, device=values.device)
    for order in orders:
        for rows in order.split(batch_size):
            read = books, codes[rows].long()  # (B, C) pairs
            logits = values[read].mean(dim=1)  # (B, Y)
            target = one_hot(y[rows], n_columns) * (1 - smoothing) + smoothing / n_columns
            gradient = (torch.softmax(logits, dim=1) - target.to(values.dtype)) / len(rows)
            change = (-lr / n_codebooks * gradient)[:, None, :].expand(-1, n_codebooks, -1)
            values.index_put_(read, change, accumulate=True)
