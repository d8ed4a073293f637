"""What rule `least_squares` has learned, as an exported graph needs it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dkvb.bottleneck.assignment import SoftAssignment


@dataclass(frozen=True, eq=False)
class SoftValuesView:
    """Values weighed by a soft assignment to all keys of a codebook."""

    assignment: SoftAssignment
    values: Tensor  # (M, Y) float64
    class_counts: Tensor  # (Y,) rows of each class: without any, a class has no score
