"""Class means of embeddings, which scores back off to where counts are thin.

A few rows leave counts at a few pairs; their mean says more. Means and variances come from sums in
whole numbers (`class_sums`). Distances weigh principal axes as the conditioning does, less so
where classes have few rows, and all that lies outside of these axes like the last of them:

    d²(x, μ) = Σ_i w_i (a_i·(x − μ))² + w ‖what is left of x − μ‖²     w = max w_i
    w_i = 1 / (v_i + SHRINKAGE/N · mean v)     v_i the variance that conditioning divides by

    score(x, y) = λ (W/N_y − d²(x, μ_y)) / W

where N_y are the rows of class y, N their mean over classes, and W the variance of rows around the
mean of their class, pooled over classes. The mean of N rows lies W/N away from the true mean;
without W/N_y classes of few rows would be at a disadvantage, and it is left out where classes are
not balanced. How constants were chosen: docs/research.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dkvb.bottleneck import Batch
from dkvb.kernels.nearest import tree_sum
from dkvb.rules.counts.class_sums import ClassSums, MeanSpace, Metric

WEIGHT = 40.0  # λ along axes that were whitened: hundreds of directions count alike
PLAIN_WEIGHT = 15.0  # λ in embeddings as they are, where few directions dominate
SHRINKAGE = 100.0  # rows per class at which half of the whitening is left
FEW_ROWS = 2.0  # rows per class at which class means count twice as much as with many
# Scores of counts and class means agree more than independent ones would: temperatures grow, the
# more so the less certain the means are.
TEMPERATURE, UNCERTAIN_ROWS = 2.2, 8.0
TEMPERATURE_WIDTH = math.log(1.5)  # how well the temperature is known before rows are left out


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means of classes as scores need them: from what was learned, whatever the order of rows."""

    space: MeanSpace
    learned: ClassSums
    per_class: Tensor  # (Y,) int64

    @cached_property
    def means(self) -> Tensor:
        """Whole numbers (Y, m) float64; zero for classes without rows."""
        rows = self.per_class.clamp(min=1).double()
        return (self.learned.sums.double() / rows[:, None]).round()

    @cached_property
    def _metric(self) -> Metric:
        return self.space.metric(SHRINKAGE / max(1.0, self.rows_per_class))

    def _lengths_of(self, squares: Tensor) -> Tensor:
        """Squared lengths (n,) in the metric from squares (n, p + 1)."""
        found: Tensor = self._metric.rest * squares[:, -1]
        if self.space.n_axes:
            found = found + tree_sum(squares[:, :-1] * self._metric.axes, dim=1)
        return found

    @cached_property
    def _lengths(self) -> Tensor:
        return self._lengths_of(self.space.squares(self.means))  # (Y,)

    @cached_property
    def _weighted(self) -> Tensor:
        return self.space.weighted(self.means, self._metric)  # (Y, m + p)

    @cached_property
    def variance(self) -> float:
        """W: of rows around the mean of their class. The variance around the mean of all counts for
        one row, and for all where every class has one."""
        n, seen = int(self.per_class.sum()), int((self.per_class > 0).sum())
        if n < 2:
            return 0.0
        squares = self.learned.squares.sum(dim=0, keepdim=True) / self.space.square_steps
        total = float(self._lengths_of(squares)[0])
        centre = (self.learned.sums.sum(dim=0, keepdim=True).double() / n).round()
        around = total - n * float(self._lengths_of(self.space.squares(centre))[0])
        # The same whatever the order of classes.
        within = total - math.fsum((self.per_class * self._lengths).tolist())
        return (max(0.0, within) + max(0.0, around) / (n - 1)) / (n - seen + 1)

    @cached_property
    def _outside(self) -> float:
        """The part of W that lies outside of principal axes."""
        n, seen = int(self.per_class.sum()), int((self.per_class > 0).sum())
        if not self.space.n_axes or n <= seen:
            return 0.0
        squares = self.learned.squares.sum(dim=0) / self.space.square_steps
        of_means = self.space.squares(self.means)  # (Y, p + 1)
        apart = of_means[:, -1] - tree_sum(of_means[:, :-1], dim=1)
        explained = math.fsum((self.per_class * apart).tolist())
        within = float(squares[-1] - tree_sum(squares[:-1], dim=0)) - explained
        return self._metric.rest * max(0.0, within) / (n - seen)

    @property
    def unseen_noise(self) -> float:
        """How much more the scores of rows vary than those of rows that `left_out` takes to be like
        the mean of their class outside of principal axes."""
        inside = self.variance - self._outside
        return math.sqrt(self.variance / inside) if inside > 0 else 1.0

    def linear(self, balanced: bool) -> tuple[Tensor, Tensor]:
        """Matrix (m, Y) and offsets (Y,) that lead from rows to scores, as exported graphs have
        them: rows after conditioning but for its linear map."""
        factor, offset = self._factor_and_offset(balanced)
        return factor * self.space.matrix(self._weighted, self._metric), offset

    @property
    def rows_per_class(self) -> float:
        return float(self.per_class.sum()) / max(1, int((self.per_class > 0).sum()))

    @property
    def temperature(self) -> float:
        """How much larger the temperature of scores is likely to be than that of counts alone."""
        return TEMPERATURE * (1 + UNCERTAIN_ROWS / max(1.0, self.rows_per_class))

    def _factor_and_offset(self, balanced: bool) -> tuple[float, Tensor]:
        """Factor and offsets (Y,) with which products of rows and means become scores."""
        if not self.variance > 0:
            return 0.0, torch.zeros_like(self._lengths)
        weight = WEIGHT if self.space.n_axes else PLAIN_WEIGHT
        weight *= 1 + FEW_ROWS / max(1.0, self.rows_per_class)
        offset = -self._lengths
        if balanced:
            offset = offset + self.variance / self.per_class.clamp(min=1)
        return 2 * weight / self.variance, offset * (weight / self.variance)

    def scores(self, batch: Batch, balanced: bool = True) -> Tensor:
        """Scores (n, Y) float64, up to a constant of each row."""
        factor, offset = self._factor_and_offset(balanced)
        found = [offset.new_zeros((0, len(offset)))]
        for _, x in batch.chunks(self.space.chunk_rows()):
            products = self.space.products(self.space.rows(x), self._weighted, self._metric)
            found.append(factor * products + offset)
        return torch.cat(found)

    def left_out(self, rows: Tensor, class_index: Tensor, balanced: bool) -> Tensor:
        """Scores (s, Y) of rows with classes (s,), each as if it had not been learned; rows are
        conditioned (s, p) and, outside of principal axes, taken to be like the mean of their class.
        """
        space, own = self.space, self.means[class_index]  # (s, m)
        found = space.rebuilt(rows, own)
        factor, offset = self._factor_and_offset(balanced)
        scores = factor * space.products(found, self._weighted, self._metric) + offset
        # The mean without the row lies N/(N − 1) times as far from it, and is less certain.
        n = self.per_class[class_index].double()
        length = self._lengths_of(space.squares(found))
        at = torch.arange(len(found), device=found.device), class_index
        bonus = self.variance * balanced / n
        nearness = scores[at] * 2 / factor - length - bonus if factor else scores[at]  # −d²
        further = (n / (n - 1).clamp(min=1)).square() * nearness + length
        further = further + self.variance * balanced / (n - 1).clamp(min=1)
        # Outside of axes the row lies at the mean of its class, which errs as those of others do.
        further = further - 2 * self._outside / n
        scores[at] = factor / 2 * further
        return scores
