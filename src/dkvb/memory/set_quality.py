"""Thresholds and probabilities of labels in sets, by predictions for examples that are left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dkvb.memory.quality import left_out_entries
from dkvb.memory.solution import ESTIMATED, LEAVE_ONE_OUT

if TYPE_CHECKING:
    from dkvb.memory.label_sets import LabelSetState

F64 = NDArray[np.float64]

PRIOR = 0.5  # the threshold that examples argue against
PRIOR_STRENGTH = 1.0  # of the slope of probabilities, in units of the spread of scores
STEPS = 30  # of Newton's method


@dataclass(frozen=True, eq=False)
class SetQuality:
    """Scores of examples that were left out, and what was said of them."""

    scores: F64  # (k, L)
    said: F64  # (k, L) 1, 0, or NaN where nobody said
    counts: F64  # (k,) rows that each stands for
    kind: str

    @classmethod
    def of(cls, state: LabelSetState) -> SetQuality:
        """Of a settled state, in canonical order.

        Where something was not said, the score of what was is an estimate: it leaves the example
        out, but of the others also those that say nothing of the label are reckoned with.
        """
        s = state.solution
        assert s is not None
        which, scores = left_out_entries(s, state.entries, state.outputs)
        said = state.rows_of_table[state.memory.targets[which]]
        unsaid = s.kind == LEAVE_ONE_OUT and bool(np.isnan(said).any())
        counts = state.memory.counts[which].astype(np.float64)
        return cls(scores, said, counts, ESTIMATED if unsaid else s.kind)

    @cached_property
    def _best(self) -> tuple[F64, F64]:
        """The threshold (L,) with the highest F1 for each label, and this F1."""
        columns = zip(self.scores.T, self.said.T, strict=True)
        found = [best_threshold(scores, said, self.counts) for scores, said in columns]
        thresholds, f1 = np.array(found).reshape(-1, 2).T
        return thresholds, f1

    @property
    def thresholds(self) -> F64:
        """The score (L,) from which an input has each label."""
        return self._best[0]

    @property
    def accuracy(self) -> float:
        """F1 averaged over the labels that some example has."""
        known = (self.said == 1).any(axis=0)
        return float(self._best[1][known].mean()) if known.any() else 0.0

    def probabilities(self, scores: F64) -> F64:
        """Of each label by itself (n, L)."""
        slope, offset = self._logistic
        found: F64 = expit(scores * slope + offset)
        return found

    @cached_property
    def _logistic(self) -> tuple[F64, F64]:
        """Slopes (L,) and offsets (L,) under which what was said is likeliest."""
        columns = zip(self.scores.T, self.said.T, strict=True)
        found = [fit_logistic(scores, said, self.counts) for scores, said in columns]
        slope, offset = np.array(found).reshape(-1, 2).T
        return slope, offset


def best_threshold(scores: F64, said: F64, counts: F64) -> tuple[float, float]:
    """The threshold with the highest F1 among examples (k,), and this F1.

    It lies half-way to the next score. Where no example has the label, it is 0.5.

    >>> best_threshold(np.array([0.1, 0.2, 0.4]), np.array([0.0, 0.0, 1.0]), np.ones(3))
    (0.30000000000000004, 1.0)
    """
    known = ~np.isnan(said) & ~np.isnan(scores)
    scores, said, counts = scores[known], said[known], counts[known]
    positive = float((said * counts).sum())
    if not positive:
        return PRIOR, 0.0
    order = np.argsort(-scores, kind="stable")
    scores = scores[order]
    hits, asked = np.cumsum((said * counts)[order]), np.cumsum(counts[order])
    f1 = 2 * hits / (asked + positive)
    last = np.append(scores[1:] < scores[:-1], True)  # equal scores are all above, or none
    f1 = np.where(last, f1, -1)
    best = int(f1.argmax())
    below = scores[best + 1] if best + 1 < len(scores) else min(scores[best], 0.0) - 1.0
    return float((scores[best] + below) / 2), float(f1[best])


def fit_logistic(scores: F64, said: F64, counts: F64) -> tuple[float, float]:
    """A slope and an offset: the probability of yes is 1 / (1 + exp(−slope · score − offset))."""
    known = ~np.isnan(said) & ~np.isnan(scores)
    scores, said, counts = scores[known], said[known], counts[known]
    if not len(scores):
        return 1.0, -PRIOR
    spread = float(scores.std()) or 1.0
    middle, prior = float(scores.mean()), np.diag([PRIOR_STRENGTH, 1e-2])
    rows = np.column_stack([(scores - middle) / spread, np.ones(len(scores))])
    weights = np.zeros(2)
    for _ in range(STEPS):
        p = expit(rows @ weights)
        gradient = rows.T @ (counts * (p - said)) + prior @ weights
        curvature = (rows * (counts * p * (1 - p))[:, None]).T @ rows + prior
        step = np.linalg.solve(curvature, gradient)
        weights -= step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
    slope = float(weights[0] / spread)
    return slope, float(weights[1] - slope * middle)
