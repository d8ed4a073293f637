"""How good a model is, by its predictions for examples that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.estimators.kernel.calibration import Calibration, fit_calibration
from dkvb.estimators.kernel.examples import Examples
from dkvb.estimators.kernel.solution import Solution


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
    """Scores of the examples that were left out."""

    which: Tensor  # (k,) positions among the examples
    scores: Tensor  # (k, Y) float64, weighted by class
    targets: Tensor  # (k,)
    kind: str

    @classmethod
    def of(cls, solution: Solution, examples: Examples, factors: Tensor) -> Quality:
        """Leave-one-out scores of the examples under a solution."""
        by_hash = torch.argsort(solution.hashes)
        row = by_hash[torch.searchsorted(solution.hashes[by_hash], examples.hashes)]
        scores = solution.without_itself().cpu()[row] * factors
        known = ~scores[:, 0].isnan()
        which = known.nonzero()[:, 0]
        absent = factors == 0
        scores = scores[which].masked_fill(absent, -torch.inf)
        return cls(which, scores, examples.targets[which], solution.judged_by)

    @cached_property
    def predicted(self) -> Tensor:
        """Class indices (k,)."""
        return self.scores.argmax(dim=1)

    @property
    def accuracy(self) -> float:
        """The share of examples that the others classify correctly."""
        return float((self.predicted == self.targets).double().mean())

    def confusion(self) -> Tensor:
        """Examples by class (rows) and predicted class (columns) (Y, Y) int64."""
        n = self.scores.shape[1]
        return torch.bincount(self.targets * n + self.predicted, minlength=n * n).view(n, n)

    @cached_property
    def calibration(self) -> Calibration:
        """The likeliest for the labels of examples that were left out."""
        return fit_calibration(self.scores, self.targets)

    def label_probabilities(self) -> Tensor:
        """The probability (k,) that the other examples give to the label of each."""
        probabilities = self.calibration.logits(self.scores).softmax(dim=1)
        return probabilities.gather(1, self.targets[:, None])[:, 0]
