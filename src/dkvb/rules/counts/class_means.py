"""Class means of embeddings, which scores back off to where counts are thin.

A few rows leave counts at a few pairs; their mean says more. Beside counts, the state holds for
each class the sum of its rows and of their squares, in whole numbers (`bottleneck.heads`): these
do not depend on the order of rows, add up, and can be subtracted, bit for bit. Distances weigh
principal axes as the conditioning does, less so where classes have few rows, and all that lies
outside of these axes like the last of them:

    d²(x, μ) = Σ_i w_i (a_i·(x − μ))² + w ‖what is left of x − μ‖²     w = max w_i
    w_i = 1 / (v_i + SHRINKAGE/N · mean v)     v_i the variance that conditioning divides by

    score(x, y) = λ (W/N_y − d²(x, μ_y)) / W

where N_y are the rows of class y, N their mean over classes, and W the variance of rows around the
mean of their class, pooled over classes. The mean of N rows lies W/N away from the true mean;
without W/N_y classes of few rows would be at a disadvantage, and it is left out where classes are
not balanced. Up to a constant of the row a score is linear: one product with a matrix. How
constants were chosen: docs/results/research.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from dkvb._support.validation import check_memory
from dkvb.bottleneck import Batch
from dkvb.bottleneck.heads import FixedPoint
from dkvb.kernels.counts import backend
from dkvb.kernels.nearest import tree_sum
from dkvb.rules.counts.class_sums import HALF, LIMB, MASK, ClassSums, in_limbs

WEIGHT = 40.0  # λ along axes that were whitened: hundreds of directions count alike
PLAIN_WEIGHT = 15.0  # λ in embeddings as they are, where few directions dominate
SHRINKAGE = 100.0  # rows per class at which half of the whitening is left
FEW_ROWS = 2.0  # rows per class at which class means count twice as much as with many
# Scores of counts and class means agree more than independent ones would: temperatures grow, the
# more so the less certain the means are.
TEMPERATURE, UNCERTAIN_ROWS = 2.2, 8.0
TEMPERATURE_WIDTH = math.log(1.5)  # how well the temperature is known before rows are left out
_LARGEST_ENTRY, _LARGEST_SQUARE = 2.0**26, 2.0**45  # of rows and squares that are summed
_LARGEST_NORM = 2.0**27  # of a column of the matrix: its products with rows stay below 2⁵³
_CHUNK_ELEMENTS = 1 << 22  # of rows in float64 at a time: 32 MB
_CHUNK_ROWS = 1 << 15  # at a time at most; the sums of twice as many stay below 2⁶¹


def sums_of(batch: Batch, class_index: Tensor, n_classes: int) -> ClassSums:
    """Sums over the rows of each class (Y, m + p + 1): of rows, of squares along each axis, and of
    squared lengths."""
    space = batch.keys.fixed_point
    m, p = space.axes.shape
    check_memory(
        f"class sums ({n_classes}, {m + p + 1})",
        16 * n_classes * (m + p + 1),  # those before are there until the end
        "learn fewer classes in one model, or narrower embeddings",
        class_index.device,
    )
    sums = torch.zeros((n_classes, m + p + 1), dtype=torch.int64, device=class_index.device)
    high, uncarried = None, 0
    size = max(1, min(_CHUNK_ELEMENTS // m, _CHUNK_ROWS))
    for part, z in batch.chunks(size, centred=True):
        rows = space.rows(z).round()
        lengths = rows.clamp(-_LARGEST_ENTRY, _LARGEST_ENTRY).long().square().sum(dim=1)
        squares = torch.cat([(rows @ space.axes).square(), lengths.double()[:, None]], dim=1)
        squares = (squares * space.square_steps).clamp(max=_LARGEST_SQUARE).round()
        sums.index_add_(0, class_index[part], torch.cat([rows, squares], dim=1).long())
        uncarried += len(z)
        if uncarried >= _CHUNK_ROWS:
            (sums, high), uncarried = in_limbs(sums, high), 0
    return ClassSums(sums, high) if high is None else in_limbs(sums, high)


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means of classes as scores need them: from what was learned, whatever the order of rows."""

    space: FixedPoint
    per_class: Tensor  # (Y,) int64
    means: Tensor  # (Y, m) float64, whole numbers; zero for classes without rows
    weights: Tensor  # (p + 1,) float64, what squares along axes and squared lengths count
    variance: float  # W
    outside: float  # the part of W that lies outside of principal axes
    factor: float  # λ/W, and what scores are multiplied by
    bonus: Tensor  # (Y,) float64, W/N_y where classes are balanced
    matrix: Tensor  # (m, Y) float64, whole numbers, in units of
    unit: float
    offset: Tensor  # (Y,) float64

    @classmethod
    def fit(
        cls,
        space: FixedPoint,
        sums: ClassSums,
        per_class: Tensor,
        balanced: bool,
        scale: float = 1.0,
    ) -> ClassMeans:
        """From sums (Y, m + p + 1) over rows, so many of each class (Y,); scores are multiplied by
        `scale`."""
        (m, p), n, seen = space.axes.shape, int(per_class.sum()), int((per_class > 0).sum())
        rows_per_class = max(1.0, n / max(1, seen))
        weights, largest = space.variances.new_ones(1), 1.0
        if p:
            shrinkage = SHRINKAGE / rows_per_class * fmean(space.variances.tolist())
            along_axes = 1 / (space.variances + shrinkage)
            weights = torch.cat([along_axes - along_axes.max(), along_axes.max()[None]])
            largest = float(weights[:-1].abs().max()) or 1.0

        # Sums over axes and classes are exact or rounded once: no order of classes changes them.
        counts = per_class.clamp(min=1).double()
        by_class = sums.low.double()
        over_all = (sums.low >> HALF).sum(dim=0).double() * 2.0**HALF  # (m + p + 1,)
        over_all += (sums.low & MASK).sum(dim=0).double()
        if sums.high is not None:
            by_class += sums.high.double() * 2.0**LIMB
            over_all += sums.high.sum(dim=0).double() * 2.0**LIMB
        means = (by_class[:, :m] / counts[:, None]).round()
        centre = (over_all[None, :m] / max(1, n)).round()
        points = torch.cat([means, centre])  # (Y + 1, m)
        along = points @ space.axes  # (Y + 1, p)
        squares = torch.cat([along.square(), points.square().sum(dim=1, keepdim=True)], dim=1)
        squares = squares / space.steps**2  # (Y + 1, p + 1)
        lengths = means.new_tensor([math.fsum(row) for row in (squares * weights).tolist()])
        total = over_all[m:] / (space.square_steps * space.steps**2)  # (p + 1,)

        # The variance around the mean of all counts for one row, and for all where every class has
        # one.
        length = math.fsum((total * weights).tolist())
        around = max(0.0, length - n * float(lengths[-1])) / max(1, n - 1)
        within = max(0.0, length - math.fsum((per_class * lengths[:-1]).tolist()))
        variance = (within + around) / (n - seen + 1) if n > 1 else 0.0
        outside = 0.0
        if p and n > seen:
            apart = [row[-1] - math.fsum(row[:-1]) for row in [total.tolist(), *squares.tolist()]]
            rest = apart[0] - math.fsum((per_class * means.new_tensor(apart[1:-1])).tolist())
            outside = float(weights[-1]) * max(0.0, rest) / (n - seen)

        factor = scale * (WEIGHT if p else PLAIN_WEIGHT) * (1 + FEW_ROWS / rows_per_class)
        factor = factor / variance if variance > 0 else 0.0
        bonus = variance * balanced / counts
        axes_part = (along[:-1] * (weights[:-1] / largest)).round() @ space.axes.T
        matrix = (weights[-1] * means + largest * axes_part).T  # (m, Y)
        norm = float(matrix.norm(dim=0).max()) if len(means) else 0.0
        unit = 2.0 ** math.ceil(math.log2(norm / _LARGEST_NORM)) if 0 < norm < math.inf else 1.0
        return cls(
            space,
            per_class,
            means,
            weights,
            variance,
            outside,
            factor,
            bonus,
            (matrix / unit).round(),
            2 * factor * unit / space.steps**2,
            factor * (bonus - lengths[:-1]),
        )

    def scores(self, batch: Batch) -> Tensor:
        """Scores (n, Y) float64, up to a constant of each row."""
        how, size = (self.matrix, self.unit, self.offset), _CHUNK_ELEMENTS // len(self.matrix)
        mean_scores = backend(self.offset.device).mean_scores
        chunks = batch.chunks(max(1, size), centred=True)
        parts = [mean_scores(z, self.space.steps, *how) for _, z in chunks]
        return torch.cat(parts) if parts else self.offset.new_zeros((0, len(self.offset)))

    def linear(self) -> tuple[Tensor, Tensor]:
        """Matrix (m, Y) and offsets (Y,) that lead from rows to scores, as exported graphs have
        them: rows after conditioning but for its linear map."""
        return self.matrix * (self.unit * self.space.steps), self.offset

    def left_out(self, rows: Tensor, class_index: Tensor) -> Tensor:
        """Scores (s, Y) of rows with classes (s,), each as if it had not been learned; rows are
        conditioned (s, p) and, outside of principal axes, taken to be like the mean of their class.
        """
        space, found = self.space, rows * self.space.steps
        if len(space.variances):
            own = self.means[class_index]  # (s, m)
            moved = found * space.variances.sqrt() - own @ space.axes
            found = own + moved.round() @ space.axes.T
        found = found.round()
        scores = found @ self.matrix * self.unit + self.offset
        # The mean without the row lies N/(N − 1) times as far from it, and is less certain.
        n = self.per_class[class_index].double()
        others = (n - 1).clamp(min=1)
        lengths = tree_sum(found.square(), dim=1)[:, None]
        squares = torch.cat([(found @ space.axes).square(), lengths], dim=1) / space.steps**2
        length = tree_sum(squares * self.weights, dim=1)
        at, bonus = (torch.arange(len(found), device=found.device), class_index), self.bonus
        nearness = scores[at] / (self.factor or 1.0) - length - bonus[class_index]  # −d²
        further = (n / others).square() * nearness + length
        further = further + bonus[class_index] * n / others
        # Outside of axes the row lies at the mean of its class, which errs as those of others do.
        scores[at] = self.factor * (further - 2 * self.outside / n)
        return scores

    @property
    def unseen_noise(self) -> float:
        """How much more the scores of rows vary than those of rows that `left_out` takes to be like
        the mean of their class outside of principal axes."""
        inside = self.variance - self.outside
        return math.sqrt(self.variance / inside) if inside > 0 else 1.0

    @property
    def temperature(self) -> float:
        """How much larger the temperature of scores is likely to be than that of counts alone."""
        rows_per_class = float(self.per_class.sum()) / max(1, int((self.per_class > 0).sum()))
        return TEMPERATURE * (1 + UNCERTAIN_ROWS / max(1.0, rows_per_class))
