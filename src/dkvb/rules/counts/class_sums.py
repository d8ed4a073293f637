"""Sums of embeddings by class, in whole numbers.

Beside counts, the state holds for each class the sum of its rows and sums of their squares. These
do not depend on the order of rows, add up, and can be subtracted, bit for bit.

Rows are what the conditioning of keys makes of embeddings before its linear map (signed power, unit
length, centring), in fixed point. Products of rows and means are sums of whole numbers below 2⁵³,
exact in any order: a row has the same products in any batch, on any device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import process_group
from dkvb.bottleneck import Batch, Keys
from dkvb.bottleneck.heads import Conditioning
from dkvb.kernels.nearest import tree_sum

_UNIT_STEPS = 2.0**24  # fixed point, of rows of unit length
_STEPS = 2.0**12  # fixed point, of other rows, in quantisation errors of the keys
_LARGEST = 2.0**32
_AXIS_STEPS = 2.0**27
_BEHIND = 2.0**24
_UNIT_SQUARES = 2.0**-18  # fixed point of squares, in squared steps, of rows of unit length
_SQUARES = 2.0**-8  # and of others
_LARGEST_SQUARE = 2.0**45
_CHUNK_ELEMENTS = 1 << 22  # of rows in float64 at a time: 32 MB


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums over the rows of each class, in fixed point."""

    sums: Tensor  # (Y, m) int64, of rows
    squares: Tensor  # (Y, p + 1) int64, of squares along each axis, and of squared lengths

    def to(self, device: torch.device | str) -> ClassSums:
        return ClassSums(self.sums.to(device), self.squares.to(device))

    def grow(self, n_classes: int) -> ClassSums:
        """The same with more classes."""
        more = n_classes - len(self.squares)
        return ClassSums(*(pad(t, (0, 0, 0, more)) for t in (self.sums, self.squares)))

    def plus(self, other: ClassSums, sign: int = 1) -> ClassSums:
        """With the sums of other rows of the same classes, or without them."""
        return ClassSums(self.sums + sign * other.sums, self.squares + sign * other.squares)

    def all_reduced(self) -> ClassSums:
        """The sums of the rows of all processes."""
        return ClassSums(*map(process_group.all_reduce, (self.sums, self.squares)))

    def map_classes(self, target: Tensor, n_classes: int) -> ClassSums:
        """Class y becomes target[y]; a negative target drops its sums."""
        kept = target >= 0
        sizes = self.sums.shape[1], self.squares.shape[1] - 1
        changed = no_sums(n_classes, *sizes, self.sums.device)
        changed.sums.index_add_(0, target[kept], self.sums[kept])
        changed.squares.index_add_(0, target[kept], self.squares[kept])
        return changed


def no_sums(
    n_classes: int, width: int, n_axes: int, device: torch.device | str = "cpu"
) -> ClassSums:
    """Sums of no rows (Y, width) with so many axes."""
    sums = torch.zeros((n_classes, width), dtype=torch.int64, device=device)
    return ClassSums(sums, sums.new_zeros((n_classes, n_axes + 1)))


class Metric(NamedTuple):
    """What squares count: along each axis beyond all directions (p,), and in all directions."""

    axes: Tensor
    rest: float


@dataclass(frozen=True, eq=False)
class MeanSpace:
    """Rows in fixed point, and inner products of them, as some keys have them."""

    conditioning: Conditioning
    quantization_error: Tensor  # (C,) of the keys

    @cached_property
    def steps(self) -> float:
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
    def axes(self) -> Tensor:
        """Principal axes (m, p) in fixed point."""
        c = self.conditioning
        if c.components is None:
            return c.centre.new_zeros((c.width, 0), dtype=torch.float64)
        return (c.components.double() * self.variances.sqrt() * _AXIS_STEPS).round()

    @cached_property
    def variances(self) -> Tensor:
        """What squares along each axis are divided by (p,)."""
        c = self.conditioning
        if c.components is None:
            return c.centre.new_zeros(0, dtype=torch.float64)
        squared: Tensor = tree_sum(c.components.double().square(), dim=0)
        return 1 / squared.clamp(min=torch.finfo(torch.float64).tiny)

    @property
    def n_axes(self) -> int:
        return len(self.variances)

    def metric(self, shrinkage: float) -> Metric:
        """What squares count if so many times the mean variance is added to every variance."""
        if not self.n_axes:
            return Metric(self.variances, 1.0)
        mean = tree_sum(self.variances, dim=0) / self.n_axes
        weights = 1 / (self.variances + shrinkage * mean)
        rest = float(weights.max())
        return Metric(weights - rest, rest)

    @cached_property
    def square_steps(self) -> float:
        """Steps of fixed point per unit of squares."""
        squares = _UNIT_SQUARES if self.conditioning.normalise else _SQUARES
        return squares * self.steps**2

    def rows(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) float32 → rows (n, m) float64 in steps, equal in any batch."""
        before_axes = replace(self.conditioning, components=None)
        return (before_axes.exact(x) * self.steps).clamp(-_LARGEST, _LARGEST)

    def coordinates(self, rows: Tensor) -> Tensor:
        """Rows (n, m) along principal axes (n, p), in steps."""
        return _exact_product(rows, self.axes) / _AXIS_STEPS

    def squares(self, rows: Tensor) -> Tensor:
        """Squares of rows (n, m) along each axis, and their squared lengths: (n, p + 1)."""
        lengths = tree_sum(rows.square(), dim=1)[:, None]
        return torch.cat([self.coordinates(rows).square(), lengths], dim=1) / self.steps**2

    def weighted(self, means: Tensor, metric: Metric) -> Tensor:
        """Means (Y, m), whole numbers, as `products` takes them: (Y, m + p)."""
        along = self.coordinates(means) * (metric.axes / _largest(metric.axes))
        return torch.cat([means, along.round()], dim=1)

    def products(self, rows: Tensor, weighted: Tensor, metric: Metric) -> Tensor:
        """Inner products (n, Y) of rows (n, m) and means, `weighted` (Y, m + p)."""
        means, along = weighted.split([self.conditioning.width, self.n_axes], dim=1)
        found: Tensor = metric.rest * _exact_product(rows, means.T)
        if self.n_axes:
            coordinates = self.coordinates(rows)
            found = found + _largest(metric.axes) * _exact_product(coordinates, along.T)
        return found / self.steps**2

    def matrix(self, weighted: Tensor, metric: Metric) -> Tensor:
        """The matrix (m, Y) whose products with rows, not in steps, are `products`."""
        means, along = weighted.split([self.conditioning.width, self.n_axes], dim=1)
        axes = _largest(metric.axes) / _AXIS_STEPS * (self.axes @ along.T)
        found: Tensor = (metric.rest * means.T + axes) / self.steps
        return found

    def rebuilt(self, conditioned: Tensor, means: Tensor) -> Tensor:
        """Rows (n, m) in steps from conditioned rows (n, p); what lies outside of principal axes is
        taken from means (n, m)."""
        if not self.n_axes:
            return conditioned * self.steps
        moved = conditioned * self.variances.sqrt() * self.steps - self.coordinates(means)
        return means + _exact_product(moved, self.axes.T) / _AXIS_STEPS

    def chunk_rows(self) -> int:
        """How many rows to take at a time."""
        return max(1, _CHUNK_ELEMENTS // self.conditioning.width)


def _largest(numbers: Tensor) -> float:
    """The largest size, 1 if there is none."""
    return (float(numbers.abs().max()) if len(numbers) else 0.0) or 1.0


def _exact_product(rows: Tensor, whole: Tensor) -> Tensor:
    """rows (n, a) @ whole (a, b), the latter whole numbers: a whole part and 24 bits behind the
    point are multiplied apart, each exactly."""
    first = rows.round()
    second = ((rows - first) * _BEHIND).round()
    product: Tensor = first @ whole + (second @ whole) / _BEHIND
    return product


_spaces: WeakKeyDictionary[Keys, MeanSpace] = WeakKeyDictionary()


def space_of(keys: Keys) -> MeanSpace:
    """The space that keys have class means in; made once."""
    if keys not in _spaces:
        _spaces[keys] = MeanSpace(keys.conditioning, keys.quantization_error)
    return _spaces[keys]


def sums_of(batch: Batch, class_index: Tensor, n_classes: int) -> ClassSums:
    """The sums of rows with classes (n,)."""
    space = space_of(batch.keys)
    found = no_sums(n_classes, batch.keys.width, space.n_axes, class_index.device)
    for part, x in batch.chunks(space.chunk_rows()):
        rows = space.rows(x).round()
        squares = (space.squares(rows) * space.square_steps).clamp(max=_LARGEST_SQUARE).round()
        found.sums.index_add_(0, class_index[part], rows.long())
        found.squares.index_add_(0, class_index[part], squares.long())
    return found
