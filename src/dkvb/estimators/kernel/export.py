"""Tensors with which an exported kernel classifier predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dkvb.bottleneck import Keys
from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.kernel.calibration import Calibration
from dkvb.estimators.kernel.functions import KernelFunction
from dkvb.estimators.kernel.state import KernelState


@dataclass(frozen=True, eq=False)
class ExportView:
    """Plain tensors; classes are in the order of sorted labels."""

    conditioning: Conditioning
    function: KernelFunction
    z: Tensor  # (N, p) conditioned rows
    alpha: Tensor  # (N, Y)
    factors: Tensor  # (Y,) of scores; 0 for a class without examples
    calibration: Calibration
    labels: list[Any]
    reference_distances: Tensor  # (h,) ascending, that novelty is measured by
    keys: Keys | None

    @classmethod
    def of(cls, state: KernelState) -> ExportView:
        """The view of a solved state."""
        solution = state.solution
        assert solution is not None
        return cls(
            solution.conditioning,
            solution.function,
            solution.z,
            solution.alpha,
            state.factors,
            state.quality.calibration,
            state.labels.classes_.tolist(),
            state.reference_distances,
            state.keys,
        )
