"""How good a model is, by its predictions for entries that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.calibration import Calibration, fit_calibration
from dkvb.memory.outputs import Classes, Outputs
from dkvb.memory.points import Memory
from dkvb.memory.solution import Solution

F64 = NDArray[np.float64]
Places = NDArray[np.int64]


def left_out_entries(solution: Solution, memory: Memory, outputs: Outputs) -> tuple[Places, F64]:
    """Positions (k,) of entries that were left out, in canonical order, and what the others predict
    for them (k, T)."""
    rank = np.empty(len(memory), np.int64)
    rank[memory.order] = np.arange(len(memory))
    if solution.exact:
        which = np.nonzero(solution.point_of >= 0)[0]
        which = which[np.argsort(rank[which])]
        left_out = solution.left_out(outputs.rows(solution.targets))
        return which, left_out[solution.point_of[which]]
    assert solution.judged is not None
    order = np.argsort(rank[solution.judged.which])
    return solution.judged.which[order], solution.judged.predicted[order].astype(np.float64)


@dataclass(frozen=True)
class Suspect:
    """A learned example whose label the other examples contradict."""

    id: Any  # that the caller gave, or None
    label: Any
    predicted: Any  # by the other examples
    probability: float  # that the other examples give to the label
    x: NDArray[np.float32]  # (m,) the embedding as it is kept


@dataclass(frozen=True, eq=False)
class Quality:
    """Scores of entries that were left out."""

    which: Places  # (k,) positions of entries
    scores: F64  # (k, Y) weighted by class
    targets: Places  # (k,)
    counts: Places  # (k,) rows that each stands for
    kind: str

    @classmethod
    def of(cls, solution: Solution, memory: Memory, factors: F64) -> Quality:
        """Leave-one-out scores of entries under a solution, in canonical order."""
        which, scores = left_out_entries(solution, memory, Classes(len(factors)))
        scores = scores * factors
        scores[:, factors == 0] = -np.inf
        return cls(which, scores, memory.targets[which], memory.counts[which], solution.kind)

    @cached_property
    def predicted(self) -> Places:
        """Class indices (k,)."""
        predicted: Places = self.scores.argmax(axis=1)
        return predicted

    @property
    def accuracy(self) -> float:
        """The share of rows that the others classify correctly."""
        right = self.counts[self.predicted == self.targets].sum()
        return float(right / max(1, self.counts.sum()))

    def confusion(self) -> Places:
        """Rows by class and predicted class (Y, Y)."""
        n = self.scores.shape[1]
        pairs = self.targets * n + self.predicted
        found = np.bincount(pairs, self.counts, minlength=n * n)
        return found.reshape(n, n).astype(np.int64)

    @cached_property
    def calibration(self) -> Calibration:
        """The likeliest for the labels of entries that were left out."""
        return fit_calibration(self.scores, self.targets)

    def label_probabilities(self) -> F64:
        """The probability (k,) that the others give to the label of each."""
        logits = self.calibration.logits(self.scores)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        own: F64 = powers[np.arange(len(powers)), self.targets] / powers.sum(axis=1)
        return own
