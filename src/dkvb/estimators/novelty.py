"""The label of inputs that lie too far from all that was learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.estimators.labels import LabelIndex

UNKNOWN = {"string": np.array("unknown"), "number": np.array(-1, dtype=np.int8)}


def unknown_label(labels: LabelIndex) -> NDArray[Any]:
    """Return the label for inputs above the novelty threshold."""
    if labels.kind not in UNKNOWN:
        raise ValueError(
            "novelty_threshold: expected labels that are strings or numbers, among which 'unknown' "
            "or −1 has a place; got booleans; use predict and novelty side by side"
        )
    unknown: NDArray[Any] = UNKNOWN[labels.kind]
    if unknown.item() in labels:
        raise ValueError(
            f"novelty_threshold: expected no class {unknown.item()!r}, which stands for inputs "
            "above it; rename that class"
        )
    return unknown
