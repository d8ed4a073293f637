"""The choice of conditioning, kernel and ridge strength by leaving one point out, exactly."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack

from dkvb.memory.conditioning import PLAIN, Conditioning
from dkvb.memory.inverse import NotPositiveDefinite, cholesky
from dkvb.memory.kernel import median_distance, rbf, rbf_matrix, self_similarity, spread_factors
from dkvb.memory.missing import without_influence
from dkvb.memory.outputs import LeaveOneOut, Outputs
from dkvb.memory.points import Points, working

log = logging.getLogger(__name__)

F64 = NDArray[np.float64]
Places = NDArray[np.int64]
T = TypeVar("T")

_INVERT = {np.dtype(np.float64): lapack.dtrtri, np.dtype(np.float32): lapack.strtri}

WIDTHS = (0.5, 1.0, 2.0)  # γ, in units of 1 / median squared distance
LAMBDAS: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
KERNEL_POINTS = 2000  # that kernels are compared on
LAMBDA_POINTS = 6000  # that λ is chosen again on
GRID_POINTS = 1000  # up to which all λ are tried, instead of those around the best so far
CELL_NOISE = 0.03  # λ to begin with for cells, of which it hardly matters
CELL_NOISES = (0.01, 0.03, 0.1, 0.3)
EQUAL = 0.5  # standard errors by which accuracies may differ and are taken for equal


@dataclass(frozen=True)
class Setting:
    """A kernel and its noise."""

    conditioning: str = PLAIN  # by name
    width: float = 1.0
    noise: float = 0.1  # λ
    score: float = 0.0  # leave-one-out balanced accuracy


class Solved(NamedTuple):
    """Values (N, T), the factor of the matrix, and the diagonal of its inverse (N,)."""

    values: F64
    lower: NDArray[Any]
    diagonal: F64 | None


class Choice(NamedTuple):
    """What was found best, its γ, and its solution where all points were tried."""

    setting: Setting
    gamma: float
    solved: Solved | None


def lowest_hashes(targets: Places, most: int) -> Places:
    """Positions (k,) of at most `most` points, which stand in the order of their hashes: the first
    of every target. All targets give the same share of their points, and at least one.
    """
    order = np.argsort(targets, kind="stable")
    own = targets[order]
    n = np.bincount(own)
    start = np.cumsum(n) - n
    rank = np.arange(len(own)) - start[own]
    share = np.empty(len(own))
    share[order] = rank / n[own]
    most = max(most, int((n > 0).sum()))
    return np.sort(np.argsort(share, kind="stable")[:most])


def system(points: Points, gamma: float, noise: float) -> F64:
    """K + diag(λ/n) (N, N), the lower triangle of it."""
    factors = spread_factors(points.spread, gamma)
    diagonal = self_similarity(points.spread, points.counts, gamma) + noise / points.counts
    return rbf_matrix(working(points.z), factors, diagonal, gamma)


def values_of(solve: Callable[[F64], F64], rows: F64) -> F64:
    """Values for targets (N, T), 0 where a target is NaN; `solve` gives A⁻¹b for b (N, T)."""
    missing = np.isnan(rows)
    values = solve(np.nan_to_num(rows))
    return without_influence(solve, values, missing) if missing.any() else values


def solved(lower: NDArray[Any], rows: F64, with_diagonal: bool = True) -> Solved:
    """Values for targets (N, T), and if asked for the diagonal of the inverse, from the factor of a
    system; 0 where a target is NaN."""

    def solve(b: F64) -> F64:
        found: F64 = cho_solve((lower, True), b.astype(lower.dtype), check_finite=False)
        return found

    values = values_of(solve, rows)
    if not with_diagonal:
        return Solved(values, lower, None)
    inverted, failed = _INVERT[lower.dtype](lower, lower=1)
    if failed:
        raise NotPositiveDefinite
    diagonal = np.einsum("ij,ij->j", inverted, inverted, dtype=np.float64)
    return Solved(values, lower, diagonal)


def choose(
    points_by: Callable[[Conditioning, int], Points],
    n_points: int,
    conditionings: dict[str, Conditioning],
    outputs: Outputs,
    widths: tuple[float, ...] = WIDTHS,
) -> Choice:
    """The setting that leaving one point out finds best (see `select_best`).

    First the conditioning, then the width of the kernel, all with their best λ; then λ again on
    more points. `points_by` gives at most so many points under a conditioning.
    """
    points = {name: points_by(by, KERNEL_POINTS) for name, by in conditionings.items()}
    units = {name: median_distance(one.z) for name, one in points.items()}
    n = float(next(iter(points.values())).counts.sum())
    tried: dict[Setting, LeaveOneOut] = {}
    solutions: dict[Setting, Solved | None] = {}

    def try_one(one: Setting) -> None:
        gamma = one.width / units[one.conditioning]
        found, solution = try_noises(points[one.conditioning], gamma, outputs, one.noise)
        for noise, judged in found.items():
            tried[replace(one, noise=noise, score=judged.accuracy)] = judged
        noise = select_best(found, n)
        solutions[replace(one, noise=noise, score=found[noise].accuracy)] = solution

    for name in conditionings:
        try_one(Setting(name))
    best = select_best(tried, n)
    for width in sorted(set(widths) - {best.width}):
        try_one(replace(best, width=width))
    best = select_best(tried, n)
    kept, gamma = solutions.get(best), best.width / units[best.conditioning]
    if n_points > len(points[best.conditioning]):
        more = points_by(conditionings[best.conditioning], LAMBDA_POINTS)
        found, kept = try_noises(more, gamma, outputs, best.noise)
        noise = select_best(found, float(more.counts.sum()))
        best = replace(best, noise=noise, score=found[noise].accuracy)
        kept = kept if len(more) == n_points else None
    _report(best)
    return Choice(best, gamma, kept)


class HeldOut(NamedTuple):
    """Cells under a conditioning, and rows that are in none of them."""

    cells: Points
    rows: Points


def choose_for_cells(
    under: Callable[[Conditioning], HeldOut],
    conditionings: dict[str, Conditioning],
    outputs: Outputs,
    widths: tuple[float, ...] = WIDTHS,
) -> Choice:
    """The setting under which cells predict rows best that are in none of them.

    What is best for cells is not what is best for few rows, which know nothing of how dense the
    others are; and leaving a cell out flatters, since cells of one class lie where others do not.
    """
    held = {name: under(by) for name, by in conditionings.items()}
    units = {name: median_distance(one.cells.z) for name, one in held.items()}
    n = float(next(iter(held.values())).rows.counts.sum())
    tried: dict[Setting, LeaveOneOut] = {}

    def try_one(one: Setting) -> None:
        cells, rows = held[one.conditioning]
        gamma = one.width / units[one.conditioning]
        try:
            lower = cholesky(system(cells, gamma, one.noise))
        except NotPositiveDefinite:
            tried[one] = LeaveOneOut(0.0, math.inf)
            return
        values = solved(lower, outputs.rows(cells.targets), False).values
        judged = outputs.judged(predicted(cells, values, rows, gamma), rows.targets, rows.counts)
        tried[replace(one, score=judged.accuracy)] = judged

    for name in conditionings:
        try_one(Setting(name, noise=CELL_NOISE))
    best = select_best(tried, n)
    for width in sorted(set(widths) - {best.width}):
        try_one(replace(best, width=width))
    best = select_best(tried, n)
    for noise in sorted(set(CELL_NOISES) - {best.noise}):
        try_one(replace(best, noise=noise))
    best = select_best(tried, n)
    _report(best)
    return Choice(best, best.width / units[best.conditioning], None)


def predicted(cells: Points, values: F64, rows: Points, gamma: float) -> F64:
    """What values (N, T) of cells predict for rows, or for cells (k, T)."""
    z = working(cells.z)
    kernel = rbf(rows.z.astype(z.dtype), z, gamma)
    weighed = values * spread_factors(cells.spread, gamma)[:, None]
    found: F64 = (kernel @ weighed.astype(kernel.dtype)).astype(np.float64)
    return found * spread_factors(rows.spread, gamma)[:, None]


def _report(best: Setting) -> None:
    log.info(
        "chosen by leaving out, accuracy %.4f: width %g, conditioning %s, lambda %g",
        best.score,
        best.width,
        best.conditioning,
        best.noise,
    )


def try_noises(
    points: Points, gamma: float, outputs: Outputs, start: float
) -> tuple[dict[float, LeaveOneOut], Solved | None]:
    """What leaving one out says of each λ, of all with few points, else of those around the best;
    and the solution with the best λ. The search climbs from `start`."""
    rows, n = outputs.rows(points.targets), float(points.counts.sum())
    kernel = system(points, gamma, 0.0)
    if len(points) > GRID_POINTS:  # twice as fast, and as good to compare by
        kernel = kernel.astype(np.float32)
    tried: dict[float, LeaveOneOut] = {}
    best: tuple[float, Solved] | None = None
    place = LAMBDAS.index(start)
    wanted = slice(None) if len(points) <= GRID_POINTS else slice(max(0, place - 1), place + 2)
    while missing := [one for one in LAMBDAS[wanted] if one not in tried]:
        for one in missing:
            matrix = kernel.copy(order="F")
            matrix[np.diag_indices(len(points))] += one / points.counts
            try:
                found = solved(cholesky(matrix), rows)
            except NotPositiveDefinite:
                tried[one] = LeaveOneOut(0.0, math.inf)
                continue
            assert found.diagonal is not None
            left_out = rows - found.values / found.diagonal[:, None]
            tried[one] = outputs.judged(left_out, points.targets, points.counts)
            if select_best(tried, n) == one:
                best = one, found
        place = LAMBDAS.index(select_best(tried, n))
        wanted = slice(max(0, place - 1), place + 2)
    known = best is not None and best[0] == LAMBDAS[place] and kernel.dtype == np.float64
    return tried, best[1] if best is not None and known else None


def select_best(tried: Mapping[T, LeaveOneOut], n: float) -> T:
    """The setting with the lowest loss among those of the highest accuracy among n rows.

    Accuracies that differ by less than half a standard error are taken for equal: which of them is
    highest is mostly chance, and the loss, which looks at every score, tells more.
    """
    highest = max(tried.values(), key=lambda one: one.accuracy)
    enough = highest.accuracy - EQUAL * highest.doubt(n) - 1e-12
    equal = [setting for setting, one in tried.items() if one.accuracy >= enough]
    return min(equal, key=lambda setting: tried[setting].loss)
