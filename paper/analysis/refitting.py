"""Keys that move further towards unlabelled rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dkvb.bottleneck import Keys
from dkvb.kernels.hashing import epoch_order


@torch.no_grad()
def move_keys(
    keys: Keys, X: Any, *, epochs: int = 1, decay: float = 0.95, batch_size: int = 256
) -> Keys:
    """Return keys moved by the paper's moving averages on rows X (n, m), without expiry.

    The averages start as if each key had just been the mean of one row. Keys keep their numbers, so
    that values stay paired with them. A key that no row is assigned to stays where it is.
    """
    x = torch.as_tensor(X).to(keys.device)
    positions = keys.keys.double()  # (C, K, d)
    counts = torch.ones(positions.shape[:2], dtype=torch.float64, device=keys.device)
    sums = positions.clone()
    moved = keys
    for epoch in range(epochs):
        for batch in x[epoch_order(len(x), 0, epoch, x.device)].split(batch_size):
            heads = keys.heads(batch).double().transpose(0, 1)  # (C, b, d)
            codes = moved.codes(batch).long().T  # (C, b)
            n = torch.zeros_like(counts).scatter_add_(1, codes, torch.ones_like(codes).double())
            total = torch.zeros_like(sums).scatter_add_(
                1, codes[:, :, None].expand_as(heads), heads
            )
            seen = n > 0
            # Averages of keys without rows would shrink together: their ratio, the key, stays.
            counts = torch.where(seen, decay * counts + (1 - decay) * n, counts)
            sums = torch.where(seen[:, :, None], decay * sums + (1 - decay) * total, sums)
            moved = replace(moved, keys=(sums / counts[:, :, None]).to(keys.keys.dtype))
    return moved
