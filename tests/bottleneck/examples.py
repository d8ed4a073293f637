"""Keys by hand, and what their codes must be."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkvb import Keys, fit_keys
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.keys import first_of_equals
from dkvb.bottleneck.projection import make_projection

BACKENDS = ["oracle", "cpu", "triton"]

# n rows, m wide, C codebooks, K pairs, key dimension d: one of everything, primes, 1 to 96
SHAPES = [
    (1, 1, 1, 1, 1),
    (7, 3, 2, 65, 1),
    (61, 11, 3, 31, 2),
    (13, 29, 5, 127, 14),
    (5, 40, 2, 300, 33),
    (3, 101, 1, 1021, 96),
]


@cache
def _some() -> Keys:
    X = np.random.default_rng(0).normal(size=(50, 2))
    return fit_keys(X, preset="paper", n_codebooks=1, n_pairs=2, key_dim=1, method="sample")


def keys_of(
    keys: Tensor, projection: Projection | None = None, conditioning: Conditioning | None = None
) -> Keys:
    """Keys (C, K, d) as they are given; a codebook reads the whole row unless told otherwise."""
    C, _, d = keys.shape
    projection = projection or Projection("identity", C, d, d)
    conditioning = conditioning or Conditioning(torch.zeros(projection.width))
    quantization_error = torch.ones(C)
    return replace(
        _some(),
        conditioning=conditioning,
        projection=projection,
        keys=keys,
        quantization_error=quantization_error,
    )


def gaussian_keys(
    n: int, m: int, C: int, K: int, d: int, scale: float = 1.0
) -> tuple[Keys, Tensor]:
    """Keys among the heads of Gaussian rows, and rows (n, m) to snap."""
    generator = torch.Generator().manual_seed(n * K + d)
    projection = make_projection("gaussian", m, n_codebooks=C, key_dim=d, seed=1)
    rows = scale * torch.randn(n + K, m, generator=generator)
    heads = projection(rows[n:].double()).transpose(0, 1)  # (C, K, d)
    return keys_of(heads.float().contiguous(), projection), rows[:n]


def canonical(keys: Keys, X: Tensor, active: Tensor | None = None, top: int = 1) -> Tensor:
    """Every code (n, C, top) by the slow decision that defines it, one row at a time."""
    allowed = first_of_equals(keys.keys, active)
    books = torch.arange(keys.n_codebooks)
    rows = keys.conditioning.centred(X)
    codes = [keys.exact_codes(z.expand(len(books), -1), books, allowed, top) for z in rows]
    return torch.stack(codes)


def by_brute_force(heads: Any, keys: Any, top: int = 1) -> Any:
    """NumPy's codes (n, C, top) for heads (n, C, d) and keys (C, K, d) of one type."""
    squared = np.square(heads[:, :, None] - keys).sum(axis=-1)  # (n, C, K)
    return np.argsort(squared, axis=2, kind="stable")[:, :, :top]
