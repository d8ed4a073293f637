"""Difference between two sets of values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def relative_difference(values: NDArray[Any], others: NDArray[Any]) -> float:
    """Return Σ|values − others| / Σ|values|, the measure of the paper's Table 1.

    >>> relative_difference(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.25
    """
    total = float(np.abs(values, dtype=np.float64).sum())
    if total == 0:
        raise ValueError("values: expected at least one that is not zero; got zeros only")
    return float(np.abs(values.astype(np.float64) - others).sum()) / total
