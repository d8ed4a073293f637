"""Values by ridge regression, from sums over rows: independent of order, mergeable, subtractable.

With features φ (M,) and targets y (Y,) of a row, V = (Σφφᵀ + λ·I)⁻¹ Σφyᵀ needs two sums only. Rows
that a hash of their content holds out keep the same two sums for themselves, from which the error
of any V on them follows, so that λ can be chosen after the fact, without a second look at the data.
λ is in units of tr(G)/M, which frees it from the scale of φ and the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from dkvb._validate import one_of
from dkvb.kernels.hashing import bits

HELD_OUT = 10  # one row in this many is held out
GRID = tuple(10.0 ** (-exponent / 2) for exponent in range(2, 13))  # 1e-1 … 1e-6, two a decade
_DEFAULT = 1e-3  # where there are no rows to choose by
_ROWS = 2048  # rows multiplied at a time, in the features' own precision
_STRIPE = 1024  # columns of G updated at a time


@dataclass(frozen=True)
class RidgeSums:
    """What ridge regression needs to know of its rows; every field is a sum over some of them.

    `gram`, `cross` and `count` are over the rows not held out, those with `held_` over the others:
    kept apart, they need never be subtracted to choose λ. Of a gram only the upper triangle counts.
    """

    gram: Tensor  # (M, M) float64, Σ φφᵀ
    cross: Tensor  # (M, Y) float64, Σ φyᵀ
    count: Tensor  # (Y,) float64, Σ y: the number of rows a class
    held_gram: Tensor  # (M, M)
    held_cross: Tensor  # (M, Y)
    held_count: Tensor  # (Y,)

    @property
    def n_features(self) -> int:
        """M."""
        return self.gram.shape[0]

    @property
    def n_columns(self) -> int:
        """Y."""
        return self.cross.shape[1]


Criterion = Callable[[RidgeSums, Tensor], float]


def empty(n_features: int, n_columns: int = 0, device: torch.device | str = "cpu") -> RidgeSums:
    """Sums over no rows.

    >>> empty(3, 2).cross.shape
    torch.Size([3, 2])
    """
    zeros = partial(torch.zeros, dtype=torch.float64, device=device)
    M, Y = n_features, n_columns
    return RidgeSums(zeros(M, M), zeros(M, Y), zeros(Y), zeros(M, M), zeros(M, Y), zeros(Y))


def content_hash(rows: Tensor) -> Tensor:
    """63 bits (n,) int64 from the content of each float32 row (n, m), whatever stands beside it."""
    # −0.0 equals 0.0 but has other bits; adding 0.0 turns it into 0.0.
    words = (rows.to(torch.float32) + 0.0).contiguous().view(torch.int32)  # (n, m)
    factors = 2 * bits(1, torch.arange(rows.shape[1], device=rows.device), 0, 0) + 1  # odd (m,)
    sums = [(part.to(torch.int64) * factors).sum(dim=1) for part in words.split(_ROWS)]
    return bits(0, torch.cat(sums), 0, 0) if sums else words.new_zeros(0, dtype=torch.int64)


def held_out(rows: Tensor, one_in: int = HELD_OUT) -> Tensor:
    """Which rows (n,) bool are kept apart to choose λ by: always the same for the same content."""
    return content_hash(rows) % one_in == 0


def add(sums: RidgeSums, phi: Tensor, targets: Tensor, held: Tensor, sign: int = 1) -> None:
    """Add rows to the sums in place; `sign=-1` takes them away again.

    `phi` (n, M) in float32 is multiplied in float32, block by block, and summed in float64; in
    float64 it is float64 throughout. `targets` are columns (n,) int64 or numbers (n, Y).
    """
    for rows in torch.arange(len(phi), device=phi.device).split(_ROWS):
        learned, apart = rows[~held[rows]], rows[held[rows]]
        _add_products(sums.gram, sums.cross, sums.count, phi[learned], targets[learned], sign)
        _add_products(
            sums.held_gram, sums.held_cross, sums.held_count, phi[apart], targets[apart], sign
        )


def _add_products(
    gram: Tensor, cross: Tensor, count: Tensor, phi: Tensor, targets: Tensor, sign: int
) -> None:
    if len(phi) == 0:
        return
    # G is symmetric: stripes of its upper triangle are little more than half of the work.
    for start in range(0, phi.shape[1], _STRIPE):
        stripe = phi[:, start : start + _STRIPE]  # (n, s)
        gram[start : start + _STRIPE, start:].add_(stripe.T @ phi[:, start:], alpha=sign)
    if (
        targets.ndim == 1
    ):  # a product with the classes present: the same on every run, on any device
        present, position = targets.unique(return_inverse=True)  # (P,), (n,)
        one_hot = torch.nn.functional.one_hot(position, len(present)).to(phi.dtype)  # (n, P)
        cross[:, present] += sign * (phi.T @ one_hot).double()
        count[present] += sign * one_hot.double().sum(dim=0)
    else:
        cross.add_(phi.T @ targets.to(phi.dtype), alpha=sign)
        count.add_(targets.double().sum(dim=0), alpha=sign)


def merge(first: RidgeSums, second: RidgeSums, sign: int = 1) -> RidgeSums:
    """The sums over the rows of both; with `sign=-1` those of the first without the second's."""
    if first.gram.shape != second.gram.shape or first.cross.shape != second.cross.shape:
        raise ValueError(
            "second: expected sums over as many features and columns as the first, "
            f"{tuple(first.cross.shape)}; got {tuple(second.cross.shape)}; use grow_columns"
        )
    return RidgeSums(
        *(getattr(first, f.name) + sign * getattr(second, f.name) for f in fields(RidgeSums))
    )


def grow_columns(sums: RidgeSums, n_columns: int) -> RidgeSums:
    """The same sums with zeros for the columns that are new; the grams are shared, not copied."""

    def wider(sum_: Tensor) -> Tensor:
        return torch.nn.functional.pad(sum_, (0, n_columns - sums.n_columns))

    return RidgeSums(
        sums.gram,
        wider(sums.cross),
        wider(sums.count),
        sums.held_gram,
        wider(sums.held_cross),
        wider(sums.held_count),
    )


def solve(sums: RidgeSums, lam: float, without_held: bool = False) -> Tensor:
    """The ridge solution V (M, Y) for λ = `lam`·tr(G)/M, from all rows or those not held out.

    One Cholesky factorisation, M³/3 multiplications, and a copy of G.
    """
    # The lower triangle of the transpose, all that is read, is the upper triangle that is kept.
    system = (sums.gram.clone() if without_held else sums.gram + sums.held_gram).T  # (M, M)
    cross = sums.cross if without_held else sums.cross + sums.held_cross  # (M, Y)
    unit = float(system.diagonal().mean())
    if unit <= 0:
        return torch.zeros_like(cross)
    system.diagonal().add_(lam * unit)
    factor, failed = torch.linalg.cholesky_ex(system)
    if bool(failed):
        # Rounding may leave G a little below positive: then the smallest usable λ is larger.
        del system, factor
        return solve(sums, 10 * lam, without_held)
    return torch.cholesky_solve(cross, factor)


def squared_error(sums: RidgeSums, values: Tensor) -> float:
    """Σ ‖y − Vᵀφ‖² over the held-out rows, up to a constant: tr(VᵀG_hV) − 2 tr(VᵀQ_h)."""
    # With U the strict upper triangle and D the diagonal, G = U + D + Uᵀ.
    upper = sums.held_gram.triu(1) @ values  # (M, Y)
    diagonal = sums.held_gram.diagonal()[:, None] * values
    quadratic = (values * (2 * upper + diagonal)).sum()
    return float(quadratic - 2 * (values * sums.held_cross).sum())


CRITERIA: dict[str, Criterion] = {"squared_error": squared_error}


def choose_lambda(
    sums: RidgeSums, grid: Sequence[float] = GRID, criterion: str = "squared_error"
) -> float:
    """The λ of the grid whose solution without the held-out rows judges those best.

    The error falls and then rises along the grid, so a search downhill from the middle, first in
    wide and then in single steps, looks at about half of it. Every look is one `solve`.
    """
    judge = CRITERIA[one_of("criterion", criterion, tuple(CRITERIA))]
    if not bool(sums.count.any()) or not bool(sums.held_count.any()):
        return _DEFAULT
    errors: dict[int, float] = {}

    def error(position: int) -> float:
        if not 0 <= position < len(grid):
            return float("inf")
        if position not in errors:
            errors[position] = judge(sums, solve(sums, grid[position], without_held=True))
        return errors[position]

    best, step = len(grid) // 2, max(1, len(grid) // 4)
    while True:
        closest = min((best, best - step, best + step), key=lambda p: (error(p), p))
        if closest != best:
            best = closest
        elif step > 1:
            step //= 2
        else:
            return grid[best]


def fit(
    sums: RidgeSums, grid: Sequence[float] = GRID, criterion: str = "squared_error"
) -> tuple[Tensor, float]:
    """Choose λ by the held-out rows, then solve with all rows: V (M, Y) and λ."""
    lam = choose_lambda(sums, grid, criterion)
    return solve(sums, lam), lam
