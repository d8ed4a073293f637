"""How close two scores must come for rounding to have mattered: for tensors and compiled loops."""

from __future__ import annotations

from typing import Any

DOUBLE_ROUNDOFF = 2.0**-53
OVERFLOW = 2.0**100  # scores beyond this are near what float32 can hold


def tolerance_of(key_dim: Any, norm: Any, reach: Any, error: Any, unit: Any) -> Any:
    """The tolerance for heads of a norm that lie up to `error` away, and keys of length `reach`.

    A score is a sum of d + 1 terms of rounded factors, each term at most ‖h‖·reach + reach²/2, and
    two scores are compared. The canonical decision rounds too, in proportion to the squared
    distance. And its head may lie `error` away from this one.
    """
    size = norm * reach + 0.5 * reach**2
    rounding = unit * size + DOUBLE_ROUNDOFF * (norm + reach) ** 2
    return 4 * (key_dim + 2) * rounding + 2 * reach * error
