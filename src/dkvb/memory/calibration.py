"""From scores to probabilities: two numbers, fitted to scores of examples that were left out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

F64 = NDArray[np.float64]
Places = NDArray[np.int64]

ROWS = 1000  # that calibration is fitted to
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

    def logits(self, scores: F64) -> F64:
        """Logarithms of probabilities (n, Y), up to a constant per row; −∞ stays −∞."""
        steep = np.maximum(self.slope * scores, LOWEST)
        logits: F64 = np.where(
            np.isinf(scores), scores, self.power * np.log(np.logaddexp(0, steep))
        )
        return logits


def fit_calibration(scores: F64, targets: Places) -> Calibration:
    """The calibration under which examples (n, Y) have the likeliest labels (n,).

    >>> fit_calibration(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    Calibration(slope=15.0, power=3.5)
    """
    guess = Calibration()
    known = np.isfinite(scores[np.arange(len(scores)), targets])
    step = max(1, int(known.sum()) // ROWS)
    scores, targets = scores[known][::step], targets[known][::step]
    if len(scores) == 0 or int(np.isfinite(scores[0]).sum()) < 2:
        return guess
    own = np.arange(len(scores)), targets

    def loss(steps: F64) -> float:
        tried = Calibration(guess.slope * math.exp(steps[0]), guess.power * math.exp(steps[1]))
        logits = tried.logits(scores)
        logs = logits[own] - logsumexp(logits, axis=1)
        return float(-logs.sum()) + 0.5 * float((steps / _PRIOR_WIDTH) @ (steps / _PRIOR_WIDTH))

    options = {"maxiter": 100, "xatol": 1e-3, "fatol": 1e-3}
    steps = minimize(loss, np.zeros(2), method="Nelder-Mead", options=options).x
    return Calibration(guess.slope * math.exp(steps[0]), guess.power * math.exp(steps[1]))
