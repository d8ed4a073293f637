"""From scores to probabilities: two numbers, fitted to scores of examples that were left out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

ROWS = 3000  # that calibration is fitted to
LOWEST = -30.0  # of slope · score: below, all scores are equally unlikely
_PRIOR_WIDTH = math.log(4.0)  # of both logarithms, worth about one example: a guide with few


@dataclass(frozen=True)
class Calibration:
    """Probabilities in proportion to softplus(slope · score)**power.

    Scores of least squares are near probabilities already, so that a softmax, which takes them for
    logarithms, would be overconfident for some inputs and underconfident for others.
    """

    slope: float = 15.0
    power: float = 3.5

    def logits(self, scores: Tensor) -> Tensor:
        """Logarithms of probabilities (n, Y), up to a constant per row; −∞ stays −∞."""
        steep = (self.slope * scores).clamp(min=LOWEST)
        return torch.where(
            scores.isinf(), scores, self.power * torch.nn.functional.softplus(steep).log()
        )


def fit_calibration(scores: Tensor, targets: Tensor) -> Calibration:
    """The calibration under which examples (n, Y) have the likeliest labels (n,).

    >>> fit_calibration(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    Calibration(slope=15.0, power=3.5)
    """
    guess = Calibration()
    known = scores.gather(1, targets[:, None])[:, 0].isfinite() if len(scores) else targets > 0
    scores, targets = scores[known][:ROWS], targets[known][:ROWS]
    if len(scores) == 0 or int(scores[0].isfinite().sum()) < 2:
        return guess

    def loss(steps: NDArray[np.float64]) -> float:
        tried = Calibration(guess.slope * math.exp(steps[0]), guess.power * math.exp(steps[1]))
        logs = torch.log_softmax(tried.logits(scores), dim=1).gather(1, targets[:, None])
        return float(-logs.sum()) + 0.5 * float((steps / _PRIOR_WIDTH) @ (steps / _PRIOR_WIDTH))

    options = {"maxiter": 100, "xatol": 1e-3, "fatol": 1e-3}
    steps = minimize(loss, np.zeros(2), method="Nelder-Mead", options=options).x
    return Calibration(guess.slope * math.exp(steps[0]), guess.power * math.exp(steps[1]))
