"""Class means of embeddings, which scores back off to where counts are thin.

A few rows leave counts at a few pairs; their mean says more. Beside counts, the state holds for
each class the sum of its rows and the sum of their squared lengths, in whole numbers: sums do not
depend on the order of rows, add up, and can be subtracted, bit for bit.

Rows are what the conditioning of keys makes of embeddings before its linear map (signed power, unit
length, centring), in fixed point. Distances weigh principal axes as the conditioning does, and all
that lies outside of these like the last of them:

    d²(x, μ) = Σ_i s_i² (a_i·(x − μ))² + s² ‖what is left of x − μ‖²      s = max s_i

    score(x, y) = w (W/N_y − d²(x, μ_y)) / W

where W is the variance of rows around the mean of their class, pooled over classes, and N_y the
rows of class y. The mean of N rows lies W/N away from the true mean; without W/N_y classes of few
rows would be at a disadvantage, and it is left out where classes are not balanced. The weight w was
chosen on small streams of CIFAR-10 (docs/research.md).

Products are sums of whole numbers below 2⁵³, exact in any order: a row has the same score in any
batch, on any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb.bottleneck import Keys
from dkvb.bottleneck.heads import Conditioning
from dkvb.kernels.nearest import tree_sum

WEIGHT = 60.0  # of distances along principal axes that were whitened: in all, hundreds count alike
PLAIN_WEIGHT = 15.0  # of distances in embeddings as they are, where few directions dominate
FEW_ROWS = 2.0  # rows per class at which class means count twice as much as with many
# Scores of counts and class means agree more than independent ones would: temperatures grow, the
# more so the less certain the means are.
TEMPERATURE, UNCERTAIN_ROWS = 2.2, 8.0

_UNIT_STEPS = 2.0**24  # fixed point, of rows of unit length
_STEPS = 2.0**12  # fixed point, of other rows, in quantisation errors of the keys
_LARGEST = 2.0**32
_AXIS_STEPS = 2.0**27
_UNIT_SQUARE_STEPS = 2.0**32
_SQUARE_STEPS = 2.0**16
_LARGEST_SQUARE = 2.0**45


@dataclass(frozen=True, eq=False)
class ClassSums:
    """The sum of each class's rows, and of their squared lengths, in fixed point."""

    sums: Tensor  # (Y, m) int64
    squares: Tensor  # (Y,) int64

    def to(self, device: torch.device | str) -> ClassSums:
        return ClassSums(self.sums.to(device), self.squares.to(device))

    def grow(self, n_classes: int) -> ClassSums:
        """The same with more classes."""
        more = n_classes - len(self.squares)
        return ClassSums(pad(self.sums, (0, 0, 0, more)), pad(self.squares, (0, more)))

    def plus(self, other: ClassSums, sign: int = 1) -> ClassSums:
        """With the sums of other rows of the same classes, or without them."""
        return ClassSums(self.sums + sign * other.sums, self.squares + sign * other.squares)

    def map_classes(self, target: Tensor, n_classes: int) -> ClassSums:
        """Class y becomes target[y]; a negative target drops its sums."""
        kept = target >= 0
        changed = no_sums(n_classes, self.sums.shape[1], self.sums.device)
        changed.sums.index_add_(0, target[kept], self.sums[kept])
        changed.squares.index_add_(0, target[kept], self.squares[kept])
        return changed


def no_sums(n_classes: int, width: int, device: torch.device | str = "cpu") -> ClassSums:
    """Sums of no rows."""
    sums = torch.zeros((n_classes, width), dtype=torch.int64, device=device)
    return ClassSums(sums, sums.new_zeros(n_classes))


@dataclass(frozen=True, eq=False)
class MeanSpace:
    """Rows in fixed point, and inner products of them, as some keys have them."""

    conditioning: Conditioning
    quantization_error: Tensor  # (C,) of the keys

    @cached_property
    def _steps(self) -> float:
        """Steps of fixed point per unit, a power of two. It follows from what stays the same when
        keys grow."""
        if self.conditioning.normalise:
            return _UNIT_STEPS
        size = float(self.quantization_error.double().mean().sqrt())
        if size == 0:
            size = float(self.conditioning.centre.double().square().mean().sqrt())
        exponent = math.floor(math.log2(size)) if 0 < size < math.inf else 0
        return _STEPS * 2.0**-exponent

    @cached_property
    def _axes(self) -> tuple[Tensor, Tensor, float]:
        """Principal axes (m, p) in fixed point, what a squared step along each counts beyond others
        (p,), and what those count."""
        c = self.conditioning
        if c.components is None:
            none = c.centre.new_zeros((c.width, 0), dtype=torch.float64)
            return none, none[0], 1.0
        components = c.components.double()
        scale = tree_sum(components.square(), dim=0).sqrt()  # (p,)
        axes = (components / scale * _AXIS_STEPS).round()
        rest = float(scale.max()) ** 2
        return axes, scale.square() - rest, rest

    @cached_property
    def square_steps(self) -> float:
        """Steps of fixed point per unit of squared lengths."""
        if self.conditioning.normalise:
            return _UNIT_SQUARE_STEPS / self._axes[2]
        return _SQUARE_STEPS * (self._steps / _STEPS) ** 2

    @property
    def weight(self) -> float:
        """What distances count in scores, one codebook taken for one."""
        return PLAIN_WEIGHT if self.conditioning.components is None else WEIGHT

    def rows(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) float32 → whole numbers (n, m) float64, equal in any batch."""
        before_axes = replace(self.conditioning, components=None)
        return (before_axes.exact(x) * self._steps).clamp(-_LARGEST, _LARGEST).round()

    def coordinates(self, rows: Tensor) -> Tensor:
        """Rows (n, m) along principal axes: whole numbers (n, p)."""
        return (rows @ self._axes[0] / _AXIS_STEPS).round()

    def squares(self, rows: Tensor) -> Tensor:
        """Squared lengths (n,) of rows (n, m), by sums in a fixed order."""
        _, weights, rest = self._axes
        found: Tensor = rest * tree_sum(rows.square(), dim=1)
        if len(weights):
            found = found + tree_sum(self.coordinates(rows).square() * weights, dim=1)
        return found / self._steps**2

    def weighted(self, means: Tensor) -> Tensor:
        """Means (Y, m) as `products` takes them: (Y, m + p)."""
        _, weights, _ = self._axes
        along = self.coordinates(means) * (weights / self._most)
        return torch.cat([means, along.round()], dim=1)

    def products(self, rows: Tensor, weighted: Tensor) -> Tensor:
        """Inner products (n, Y) of rows (n, m) and means, `weighted` (Y, m + p)."""
        means, along = weighted.split([self.conditioning.width, len(self._axes[1])], dim=1)
        found: Tensor = self._axes[2] * (rows @ means.T)
        found = found + self._most * (self.coordinates(rows) @ along.T)
        return found / self._steps**2

    @cached_property
    def _most(self) -> float:
        weights = self._axes[1]
        return (float(weights.abs().max()) if len(weights) else 0.0) or 1.0


_spaces: WeakKeyDictionary[Keys, MeanSpace] = WeakKeyDictionary()


def space_of(keys: Keys) -> MeanSpace:
    """The space that keys have class means in; made once."""
    if keys not in _spaces:
        _spaces[keys] = MeanSpace(keys.conditioning, keys.spread)
    return _spaces[keys]


def sums_of(
    space: MeanSpace, chunks: Iterable[tuple[slice, Tensor]], class_index: Tensor, n_classes: int
) -> ClassSums:
    """The sums of rows with classes (n,), whose embeddings come in chunks (r, m) float32."""
    found = no_sums(n_classes, space.conditioning.width, class_index.device)
    for part, x in chunks:
        rows = space.rows(x)
        squares = (space.squares(rows) * space.square_steps).clamp(max=_LARGEST_SQUARE).round()
        found.sums.index_add_(0, class_index[part], rows.long())
        found.squares.index_add_(0, class_index[part], squares.long())
    return found


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
    def _lengths(self) -> Tensor:
        return self.space.squares(self.means)  # (Y,)

    @cached_property
    def _weighted(self) -> Tensor:
        return self.space.weighted(self.means)  # (Y, m + p)

    @cached_property
    def variance(self) -> float:
        """W: of rows around the mean of their class. The variance around the mean of all counts for
        one row, and for all where every class has one."""
        n, seen = int(self.per_class.sum()), int((self.per_class > 0).sum())
        if n < 2:
            return 0.0
        total = float(self.learned.squares.sum()) / self.space.square_steps
        centre = (self.learned.sums.sum(dim=0).double() / n).round()
        overall = max(0.0, total - n * float(self.space.squares(centre[None])[0])) / (n - 1)
        # The same whatever the order of classes.
        explained = math.fsum((self.per_class * self._lengths).tolist())
        return (max(0.0, total - explained) + overall) / (n - seen + 1)

    @property
    def rows_per_class(self) -> float:
        return float(self.per_class.sum()) / max(1, int((self.per_class > 0).sum()))

    @property
    def temperature(self) -> float:
        """How much larger the temperature of scores is than that of counts alone."""
        return TEMPERATURE * (1 + UNCERTAIN_ROWS / max(1.0, self.rows_per_class))

    def linear(self, balanced: bool) -> tuple[float, Tensor]:
        """Factor and offsets (Y,) with which products of rows and means become scores."""
        if not self.variance > 0:
            return 0.0, torch.zeros_like(self._lengths)
        weight = self.space.weight * (1 + FEW_ROWS / max(1.0, self.rows_per_class))
        offset = -self._lengths
        if balanced:
            offset = offset + self.variance / self.per_class.clamp(min=1)
        return 2 * weight / self.variance, offset * (weight / self.variance)

    def scores(self, x: Tensor, balanced: bool = True) -> Tensor:
        """Scores (n, Y) of embeddings (n, m) float32, up to a constant of the row."""
        factor, offset = self.linear(balanced)
        return factor * self.space.products(self.space.rows(x), self._weighted) + offset
