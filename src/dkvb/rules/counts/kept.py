"""Codes and labels of some rows, kept as they are: which, and what is left when some are taken."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.counts import hash_codes


def code_hash(codes: Tensor) -> Tensor:
    """63 bits (n,) from codes (n, C): always the same for the same codes."""
    factors = 2 * bits(2, torch.arange(codes.shape[1], device=codes.device), 0, 0) + 1  # odd (C,)
    return hash_codes(codes, factors)


def left_after(
    codes: Tensor, columns: Tensor, gone_codes: Tensor, gone_columns: Tensor
) -> Tensor | None:
    """Which rows (S,) bool are left of codes (S, C) with columns (S,) when others are taken out,
    each once; None if one of those is not there."""
    gone = Counter(_as_bytes(gone_codes, gone_columns))
    left = torch.ones(len(codes), dtype=torch.bool)
    if gone:
        for i, row in enumerate(_as_bytes(codes, columns)):
            if gone[row] > 0:
                gone[row] -= 1
                left[i] = False
    return None if any(gone.values()) else left.to(codes.device)


def _as_bytes(codes: Tensor, columns: Tensor) -> list[bytes]:
    both = torch.cat([codes, columns.int()[:, None]], dim=1)
    return [row.tobytes() for row in both.cpu().numpy()]
