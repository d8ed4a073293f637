"""What targets are: the columns that values have, and how good predictions of them are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Places = NDArray[np.int64]

TEMPERATURES = (3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)  # that scores are multiplied by


@dataclass(frozen=True)
class LeaveOneOut:
    """How well the others predict each point."""

    accuracy: float  # averaged over classes; of numbers: 0, so that the loss alone decides
    loss: float

    def doubt(self, n: float) -> float:
        """The standard error of the accuracy among n rows, never zero."""
        right = (self.accuracy * n + 1) / (n + 2)
        return float((right * (1 - right) / n) ** 0.5)


class Outputs(Protocol):
    """Targets as rows of numbers, and the judgement of predictions for them."""

    @property
    def n_columns(self) -> int: ...
    def strata(self, targets: Places) -> Places:
        """The kinds (N,) of targets, of each of which a sample has some."""

    def rows(self, targets: Places) -> F64:
        """Targets (N,) as numbers (N, T)."""

    def judged(self, predicted: F64, targets: Places, counts: F64) -> LeaveOneOut:
        """How good predictions (N, T) are for points with these targets and counts (N,)."""


@dataclass(frozen=True)
class Classes:
    """One class of many."""

    n_columns: int

    def strata(self, targets: Places) -> Places:
        """The classes."""
        return targets

    def rows(self, targets: Places) -> F64:
        """1 in the column of the class, else 0 (N, T)."""
        rows = np.zeros((len(targets), self.n_columns))
        rows[np.arange(len(targets)), targets] = 1
        return rows

    def judged(self, predicted: F64, targets: Places, counts: F64) -> LeaveOneOut:
        """Accuracy, and the log loss at the best of a few temperatures, averaged over classes."""
        total: F64 = np.bincount(targets, counts, minlength=self.n_columns).astype(np.float64)
        present = total > 0
        column = np.cumsum(present) - 1
        own, total = column[targets], total[present]
        scores = predicted[:, present] * class_factors(total)
        share = counts / total[own] / len(total)
        right = scores.argmax(axis=1) == own
        losses = []
        for temperature in TEMPERATURES:
            hot = scores * temperature
            top = hot.max(axis=1)
            log_sum = np.log(np.exp(hot - top[:, None]).sum(axis=1)) + top
            losses.append(float(((log_sum - hot[np.arange(len(own)), own]) * share).sum()))
        return LeaveOneOut(float((right * share).sum()), min(losses))


@dataclass(frozen=True, eq=False)
class Numbers:
    """Rows of numbers, predicted with the least squared error.

    A last column of ones is solved for as well. With it the numbers can be centred by any mean
    afterwards: with A⁻¹y and A⁻¹1 one has A⁻¹(y − μ1) for every μ.
    """

    table: F64  # (S, T): target i is row i

    @property
    def n_columns(self) -> int:
        width: int = self.table.shape[1] + 1
        return width

    def strata(self, targets: Places) -> Places:
        """All targets are of one kind."""
        return np.zeros_like(targets)

    def rows(self, targets: Places) -> F64:
        """The rows of the table, and ones (N, T + 1)."""
        return np.column_stack([self.table[targets], np.ones(len(targets))])

    def judged(self, predicted: F64, targets: Places, counts: F64) -> LeaveOneOut:
        """The squared error, summed over columns in units of their variances."""
        own, share = self.table[targets], counts / counts.sum()
        mean = share @ own
        variance = share @ (own - mean) ** 2
        error = share @ (own - centred(predicted, mean)) ** 2
        known = variance > 0
        return LeaveOneOut(0.0, float((error[known] / variance[known]).sum()))


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Rows of 1 and 0, or of shares between, for labels of which each is predicted by itself; NaN
    where nobody said."""

    table: F64  # (S, L): target i is row i

    @property
    def n_columns(self) -> int:
        width: int = self.table.shape[1]
        return width

    def strata(self, targets: Places) -> Places:
        """All targets are of one kind."""
        return np.zeros_like(targets)

    def rows(self, targets: Places) -> F64:
        """The rows of the table (N, L)."""
        rows: F64 = self.table[targets]
        return rows

    def judged(self, predicted: F64, targets: Places, counts: F64) -> LeaveOneOut:
        """The squared error of each label in units of its variance, averaged over labels."""
        own = self.table[targets]
        share = np.where(np.isnan(own), 0, counts[:, None])
        share /= np.maximum(share.sum(axis=0), 1)
        own, predicted = np.nan_to_num(own), np.nan_to_num(predicted)
        variance = (share * own**2).sum(axis=0) - (share * own).sum(axis=0) ** 2
        error = (share * (own - predicted) ** 2).sum(axis=0)
        known = variance > 0
        loss = float((error[known] / variance[known]).mean()) if known.any() else 0.0
        return LeaveOneOut(0.0, loss)


def centred(predicted: F64, mean: F64) -> F64:
    """Predictions (n, T) of numbers that were centred by a mean (T,) or means (n, T), from those of
    the numbers as they are and of ones (n, T + 1)."""
    found: F64 = predicted[:, :-1] + mean * (1 - predicted[:, -1:])
    return found


def class_factors(counts: F64) -> F64:
    """What scores of each class (Y,) are multiplied by: 1 / √count, 1 on average over classes.

    A class without rows has the factor 0.

    >>> class_factors(np.array([1.0, 4.0, 0.0]))
    array([1.33333333, 0.66666667, 0.        ])
    """
    present = counts > 0
    factors: F64 = np.where(present, np.maximum(counts, 1) ** -0.5, 0.0)
    factors *= present.sum() / max(float(factors.sum()), np.finfo(np.float64).tiny)
    return factors
