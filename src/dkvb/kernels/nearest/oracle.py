"""The search for nearest keys as a plain matrix product, which the fast kernels are compared
with."""

from __future__ import annotations

import torch
from torch import Tensor

UNIT_ROUNDOFF = 2.0**-53


def prepare(keys: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Nothing to prepare: keys (C, K, d) and bias (C, K) as float64."""
    return keys.double(), bias.double()


def project(rows: Tensor, matrices: Tensor) -> Tensor:
    """Heads (n, C, d) float64 of rows (n, p) by matrices (C, p, d)."""
    return torch.einsum("np,cpd->ncd", rows.double(), matrices.double())


def search(
    heads: Tensor, prepared: tuple[Tensor, Tensor], tolerance: Tensor, top: int = 1
) -> tuple[Tensor, Tensor]:
    """The `top` lowest scores ½‖k‖² − h·k: codes (n, C, top), and where that is unsure (n, C).

    Unsure means that two scores next to each other, up to the one after the last returned, differ
    by no more than `tolerance` (n, C).
    """
    keys, bias = prepared
    codes, unsure = [], []
    for book in range(keys.shape[0]):
        scores = bias[book] - heads[:, book].double() @ keys[book].T  # (n, K)
        lowest, order = torch.sort(scores, dim=1, stable=True)
        gaps = lowest[:, 1 : top + 1] - lowest[:, :top][:, : lowest.shape[1] - 1]
        # Written so that NaN (inf − inf among forbidden keys) counts as unsure.
        codes.append(order[:, :top].to(torch.int32))
        unsure.append(~(gaps > tolerance[:, book, None]).all(dim=1))
    return torch.stack(codes, 1), torch.stack(unsure, 1)
