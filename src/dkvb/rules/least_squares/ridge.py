"""Values by ridge regression from sums, and the λ they are found with.

V = (G + λI)⁻¹Q with G = Σφφᵀ and Q = Σφyᵀ. λ is given in units of tr(G)/M, which frees it from the
scale of φ and the number of rows, or as it is added to G (`penalty`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dkvb.rules.least_squares.choice import GRID, TOLERANCE, HeldOutScores, choose_lambda
from dkvb.rules.least_squares.factor import Factor, SpanFactor, factorise, factorise_dense
from dkvb.rules.least_squares.subspace import choose_in_subspace, in_span
from dkvb.rules.least_squares.sums import Dense, RidgeSums

LARGE = 1024  # features up to which everything is solved anew after every change
_DEFAULT = 0.01  # λ where there are no rows to choose by
_FEW = 0.5  # rows per feature up to which the problem is solved in the space that they span,
FEW_OF_LARGE = 0.125  # and where features are many, since λ is then chosen at less cost


@dataclass(frozen=True, eq=False)
class Solution:
    """Values, the λ they were found with, and how that λ does on held-out rows."""

    values: Tensor  # (M, Y)
    lam: float  # in units of tr(G)/M
    held_out_scores: HeldOutScores | None  # of values from other rows; None without held-out rows
    sum_squares: Tensor  # (Y,), diag(VᵀGV): the sum over all rows of squared scores


@dataclass(frozen=True, eq=False)
class Fit:
    """A solution, and what finding the next one after more rows needs."""

    solution: Solution
    penalty: float  # λ
    cross: Tensor  # (M, Y), Q
    factor: Factor | None  # of G + λI; None without rows, or where features are few


def solution_of(
    values: Tensor, cross: Tensor, penalty: float, lam: float, scored: HeldOutScores | None
) -> Solution:
    """The solution V (M, Y) of (G + λI)V = Q with Q = `cross` and λ = `penalty`."""
    # diag(VᵀGV) = diag(VᵀQ) − λ·diag(VᵀV) needs no product with G.
    squares = (values * cross).sum(dim=0) - penalty * values.square().sum(dim=0)
    return Solution(values, lam, scored, squares.clamp(min=0))


def fit(
    sums: RidgeSums,
    grid: Sequence[float] = GRID,
    tolerance: float = TOLERANCE,
    n_rows: float = math.inf,
    kept: tuple[float, HeldOutScores | None] | None = None,
) -> Fit:
    """The solution from all rows, with the smallest λ of the grid whose squared error on held-out
    rows is within `tolerance` of the lowest, or with a λ that is `kept`.

    The products of `n_rows` rows, where these are known to be fewer than features, have no higher
    rank. The problem is then solved in the space that the rows span, where V lies too.

    Parameters
    ----------
    kept : (float, HeldOutScores), optional
        λ that was chosen before, and how it did then.
    """
    M = len(sums.learned.cross)
    most = (_FEW if M <= LARGE else FEW_OF_LARGE) * M
    few = 0 < n_rows <= most and sums.learned.gram.device.type == "cpu"
    if M > LARGE and not few:
        return _fit_large(sums, grid, tolerance, kept)
    if few:
        problem = in_span(sums.learned.rounded(), sums.held.rounded())
        return _fit_small(*problem, M, grid, tolerance, kept)
    return _fit_small(sums.learned.dense(), sums.held.dense(), None, M, grid, tolerance, kept)


def fit_rows(
    phi: Tensor,
    targets: Tensor,
    held: Tensor,
    kept: tuple[float, HeldOutScores | None] | None = None,
) -> Fit:
    """The same from rows φ (k, M), fewer than features, with targets (k, Y), of which some are
    `held` (k,) out; no sums of products are needed."""
    basis = torch.linalg.qr(phi.T)[0]  # (M, k)
    inside = phi @ basis
    learned, held_out = (
        Dense(
            inside[chosen].T @ inside[chosen],
            inside[chosen].T @ targets[chosen],
            targets[chosen].sum(dim=0),
            targets[chosen].square().sum(dim=0),
        )
        for chosen in (~held, held)
    )
    return _fit_small(learned, held_out, basis, phi.shape[1], GRID, TOLERANCE, kept)


def _fit_small(
    learned: Dense,
    held: Dense,
    basis: Tensor | None,
    n_features: int,
    grid: Sequence[float],
    tolerance: float,
    kept: tuple[float, HeldOutScores | None] | None,
) -> Fit:
    """The solution from moments of few features, or in a basis (M, r) of few dimensions."""
    gram, cross = learned.gram + held.gram, learned.cross + held.cross
    units = [float(each.trace()) / n_features for each in (learned.gram, held.gram, gram)]
    lam, scored = kept or (_DEFAULT, None)
    if kept is None and min(units) > 0:
        lam, scored = choose_lambda(learned, held, units[0], grid, tolerance)
    values, factor, penalty = torch.zeros_like(cross), None, 0.0
    if units[2] > 0:
        inner, penalty = factorise_dense(gram, lam * units[2])
        lam *= penalty / (lam * units[2])  # larger where rounding asked for it
        values = torch.cholesky_solve(cross, inner)
        factor = None if basis is None else SpanFactor(basis, inner, penalty)
    if basis is not None:
        values, cross = basis @ values, basis @ cross
    # In rows, as a file gives it back: products with it are rounded by how it lies in memory.
    found = solution_of(values.contiguous(), cross, penalty, lam, scored)
    return Fit(found, penalty, cross, factor)


def _fit_large(
    sums: RidgeSums,
    grid: Sequence[float],
    tolerance: float,
    kept: tuple[float, HeldOutScores | None] | None,
) -> Fit:
    """The same where features and rows are many: two factorisations, and no matrix (M, M)."""
    learned, held, M = sums.learned.rounded(), sums.held.rounded(), sums.n_features
    lam, scored = kept or (_DEFAULT, None)
    if kept is None and learned.trace > 0 and held.trace > 0:
        unit = learned.trace / M
        lam, scored = choose_in_subspace(learned, held, unit, grid, tolerance)
    unit, cross = sums.trace / M, learned.cross + held.cross
    if unit <= 0:
        nothing = torch.zeros_like(cross)
        return Fit(solution_of(nothing, nothing, 0.0, lam, scored), 0.0, nothing, None)
    factor, penalty = factorise(learned.gram + held.gram, M, lam * unit)
    lam *= penalty / (lam * unit)
    found = solution_of(factor.solve(cross), cross, penalty, lam, scored)
    return Fit(found, penalty, cross, factor)


def balance(solution: Solution) -> Solution:
    """The same solution with scores normalised per class: the mean square of a class's scores over
    all rows is that of the others.

    Ridge regression shrinks the scores of a class the more the fewer rows it has, which costs it
    more than its due when the highest score wins.
    """
    size = solution.sum_squares.sqrt()
    seen = size > 0
    if not bool(seen.any()):
        return solution
    factor = torch.where(seen, size[seen].mean() / size, 1.0)  # scores stay about as large
    scored = solution.held_out_scores
    if scored is not None:
        scored = replace(
            scored,
            score_squares=factor[:, None] * scored.score_squares * factor,
            score_sums=factor[:, None] * scored.score_sums,
        )
    squares = solution.sum_squares * factor.square()
    return Solution(solution.values * factor, solution.lam, scored, squares)


def cost(n_features: int, n_rows: float) -> float:
    """About how many multiplications `fit` takes."""
    M, looks = n_features, 8
    if n_rows <= (_FEW if M <= LARGE else FEW_OF_LARGE) * M:
        return (4 * M + looks * n_rows) * M * n_rows
    return M**3 if M > LARGE else looks * M**3 / 3
