"""Difference between two sets of values."""

from __future__ import annotations

from torch import Tensor


def relative_difference(values: Tensor, others: Tensor) -> float:
    """Return Σ|values − others| / Σ|values|, the measure of the paper's Table 1.

    >>> import torch
    >>> relative_difference(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]))
    0.25
    """
    total = float(values.double().abs().sum())
    if total == 0:
        raise ValueError("values: expected at least one that is not zero; got zeros only")
    return float((values.double() - others.double()).abs().sum()) / total
