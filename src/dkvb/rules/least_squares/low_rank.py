"""The space that few rows span, in which their ridge problem is a small one."""

from __future__ import annotations

import torch
from scipy.linalg.lapack import dpstrf
from torch import Tensor


def span(upper: Tensor) -> tuple[Tensor, Tensor]:
    """O (M, r) and T (r, r) with G = O·T·Oᵀ, O orthonormal and r the rank of G.

    `upper` (M, M) float64 is the upper triangle of G on the CPU, and is overwritten. About r·M²
    multiplications.
    """
    # Cholesky with pivots stops at the rank. LAPACK reads columns, so that upper is lower.
    factor, pivots, rank, _ = dpstrf(upper.numpy().T, lower=1, overwrite_a=1)
    root = torch.empty((len(upper), rank), dtype=torch.float64)  # G = root·rootᵀ
    root[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(factor[:, :rank]).tril()
    basis, inner = torch.linalg.qr(root)
    return basis, inner @ inner.T
