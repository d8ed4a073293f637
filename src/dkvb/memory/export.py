"""Arrays with which an exported kernel classifier predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.calibration import Calibration
from dkvb.memory.conditioning import Conditioning
from dkvb.memory.state import KernelState

F64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ExportView:
    """Plain arrays; classes are in the order of sorted labels."""

    conditioning: Conditioning
    gamma: float
    z: NDArray[np.float32]  # (N, p) conditioned points
    values: F64  # (N, Y) what similarities are multiplied by
    factors: F64  # (Y,) of scores; 0 for a class without examples
    calibration: Calibration
    labels: list[Any]
    reference_distances: F64  # (h,) ascending, that novelty is measured by
    fingerprint: str  # of the keys, if there are any

    @classmethod
    def of(cls, state: KernelState) -> ExportView:
        """The view of a settled state."""
        solution = state.solution
        assert solution is not None
        return cls(
            solution.by,
            solution.gamma,
            solution.z.array,
            solution.values,
            state.factors,
            state.calibration,
            state.labels.classes_.tolist(),
            state.reference_distances,
            "" if state.keys is None else state.keys.fingerprint,
        )
