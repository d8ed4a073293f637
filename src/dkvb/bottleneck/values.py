"""Values paired with keys: fetched by code, the only part that learns (section 2, step 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from dkvb._support.validation import one_of

STARTS = ("zero", "normal")


def start_values(
    n_codebooks: int,
    n_pairs: int,
    value_dim: int,
    *,
    start: str = "zero",
    scale: float = 0.001,
    seed: int = 0,
) -> Tensor:
    """Values before learning (C, K, d_value): zero, as in the paper's experiments, or normal."""
    one_of("value_start", start, STARTS)
    shape = (n_codebooks, n_pairs, value_dim)
    if start == "zero":
        return torch.zeros(shape)
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def flat_codes(codes: Tensor, n_pairs: int) -> Tensor:
    """Codes (..., C) as places in the table of all pairs (..., C): book · K + code."""
    books = torch.arange(codes.shape[-1], device=codes.device)
    return codes.long() + books * n_pairs


def fetch(values: Tensor, codes: Tensor) -> Tensor:
    """The value of each code: values (C, K, d_value), codes (n, C) → (n, C, d_value)."""
    return values.flatten(0, 1)[flat_codes(codes, values.shape[1])]


def mean_of_fetched(values: Tensor, codes: Tensor) -> Tensor:
    """`fetch(values, codes).mean(1)` without the tensor in between: (n, d_value)."""
    return embedding_bag(flat_codes(codes, values.shape[1]), values.flatten(0, 1), mode="mean")


def count_usage(usage: Tensor, codes: Tensor) -> None:
    """Add to usage (C, K) int64, in place, how often codes (n, C) select each pair."""
    places = flat_codes(codes, usage.shape[1]).flatten()
    usage.view(-1).add_(torch.bincount(places, minlength=usage.numel()))
