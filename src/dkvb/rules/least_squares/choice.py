"""The choice of λ by the squared error on held-out rows, from sums alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dkvb.rules.least_squares.sums import Dense

TOLERANCE = 0.05  # how much more than the lowest squared error a smaller λ may cost
GRID = tuple(10.0 ** (1 - step / 4) for step in range(23))  # 10 … 10^-4.5, four a decade
_DECADE = 4  # steps of the grid
_FIRST = 8  # place of the grid where the search starts: 0.1


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """How a solution V does on some rows, as far as their sums can tell."""

    total: Tensor  # (Y,), Σ y: the number of rows of each class
    square: Tensor  # (Y,), Σ y²
    score_squares: Tensor  # (Y, Y), VᵀGV: the sum over rows of Vᵀφ times its transpose
    score_sums: Tensor  # (Y, Y), VᵀQ: column b is the sum of Vᵀφ over rows of class b

    @property
    def squared_error(self) -> float:
        """Σ ‖y − Vᵀφ‖² = Σ‖y‖² − 2 tr(VᵀQ) + tr(VᵀGV)."""
        error = self.square.sum() - 2 * self.score_sums.trace() + self.score_squares.trace()
        return max(0.0, float(error))  # rounding may leave a perfect fit a little below

    @property
    def score_deviation(self) -> float:
        """How far scores lie from the mean of their class, over rows and columns that have any."""
        rows = self.total  # (Y,)
        means = self.score_sums / rows.clamp(min=1)  # (Y, Y), one column per class
        within = self.score_squares.diagonal() - (means.square() * rows).sum(dim=1)  # (Y,)
        present = rows > 0
        free = float((rows.sum() - present.sum()).clamp(min=1)) * max(1, int(present.sum()))
        return math.sqrt(max(0.0, float(within[present].sum()) / free))

    def with_classes(self, n_classes: int) -> HeldOutScores:
        """The same with classes that had no rows yet."""
        new = n_classes - len(self.total)
        pad = torch.nn.functional.pad
        return HeldOutScores(
            pad(self.total, (0, new)),
            pad(self.square, (0, new)),
            pad(self.score_squares, (0, new, 0, new)),
            pad(self.score_sums, (0, new, 0, new)),
        )


def evaluate_on(moments: Dense, values: Tensor) -> HeldOutScores:
    """How V (r, Y) does on the rows of `moments`."""
    squares, sums = values.T @ (moments.gram @ values), values.T @ moments.cross
    return HeldOutScores(moments.total, moments.square, squares, sums)


def choose_lambda(
    learned: Dense,
    held: Dense,
    unit: float,
    grid: Sequence[float] = GRID,
    tolerance: float = TOLERANCE,
) -> tuple[float, HeldOutScores | None]:
    """The smallest λ of the grid, in units of `unit`, whose solution from the rows `learned` has a
    squared error on the rows `held` within `tolerance` of the lowest, and how that solution does.

    The lowest squared error itself asks for too large a λ when classes are many: shrinking all
    scores towards zero lowers it without changing which score is the highest.
    """
    evaluated: dict[int, HeldOutScores] = {}

    def error(place: int) -> float:
        system = learned.gram.clone()
        system.diagonal().add_(grid[place] * unit)
        factor, failed = torch.linalg.cholesky_ex(system)
        if bool(failed):  # rounding may leave G a little below positive: such a λ is too small
            return math.inf
        evaluated[place] = evaluate_on(held, torch.cholesky_solve(learned.cross, factor))
        return evaluated[place].squared_error

    chosen = select_lambda(error, len(grid), tolerance)
    return grid[chosen], evaluated.get(chosen)


def select_lambda(error: Callable[[int], float], n: int, tolerance: float) -> int:
    """The last of n places whose error is within `tolerance` of the lowest, with few looks at it.

    The error falls and then rises from place to place, slowly: its lowest value is looked for in
    wide steps and once more at the vertex of the parabola there, the border by halving. Looks at
    about six places.
    """
    seen: dict[int, float] = {}

    def evaluate_at(place: int) -> float:
        if place not in seen:
            seen[place] = error(place)
        return seen[place]

    best = min(_FIRST, n - 1)
    while True:
        near = [min(best + _DECADE, n - 1), max(best - _DECADE, 0)]
        lower = next((place for place in near if evaluate_at(place) < evaluate_at(best)), None)
        if lower is None:
            break
        best = lower
    if near == [best + _DECADE, best - _DECADE]:
        after, before = (evaluate_at(place) - evaluate_at(best) for place in near)
        if 0 < after + before < math.inf:
            evaluate_at(best + round(_DECADE / 2 * (before - after) / (before + after)))
    while True:
        limit = min(seen.values()) * (1 + tolerance)
        inside = max(place for place, value in seen.items() if value <= limit)
        outside = min((place for place in seen if place > inside), default=None)
        if inside == n - 1 or outside == inside + 1:
            return inside
        evaluate_at(min(inside + _DECADE, n - 1) if outside is None else (inside + outside) // 2)
