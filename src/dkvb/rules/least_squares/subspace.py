"""Spaces of few dimensions, in which a ridge problem is a small one: that of few rows, and one that
the solutions for all λ lie near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from dkvb.rules.least_squares.choice import GRID, TOLERANCE, HeldOutScores, choose_lambda
from dkvb.rules.least_squares.factor import factorise
from dkvb.rules.least_squares.sums import Dense, Moments

_POLE = 1e-3  # λ₀, in units of tr(G)/M
_RANK = 1e-9  # relative size of squared columns that rounding cannot explain
_FORWARD = 3  # blocks of powers of G, one column per class each
_FEWEST, _MOST, _WIDTH = 4, 16, 512  # blocks of powers of the inverse, and about how many columns


def choose_in_subspace(
    learned: Moments,
    held: Moments,
    unit: float,
    grid: Sequence[float] = GRID,
    tolerance: float = TOLERANCE,
) -> tuple[float, HeldOutScores | None]:
    """What `choose_lambda` finds, with one factorisation for all λ; errors agree to about 0.3 %.

    The solutions (G + λI)⁻¹Q for all λ lie near the extended block Krylov space, which powers of
    (G + λ₀I)⁻¹ and of G make of Q: the first where λ is small, the others where it is large. The
    problem is solved in that space, of some hundred dimensions.
    """
    small = _in_krylov_space(learned, held, _POLE * unit)
    return choose_lambda(*small, unit, grid, tolerance)


def _in_krylov_space(learned: Moments, held: Moments, penalty: float) -> tuple[Dense, Dense]:
    """The moments in an orthonormal basis of the space for λ₀ = `penalty`."""
    M, Y = learned.cross.shape
    n_inverse = max(_FEWEST, min(_MOST, _WIDTH // Y))
    if (n_inverse + _FORWARD) * Y >= M:  # no space of fewer dimensions
        return learned.dense(), held.dense()
    # The factor, and rounding, decide which space it is, and nothing else: float32 will do.
    factor, _ = factorise(learned.gram, M, penalty, torch.float32)
    inverse = forward = (learned.cross / learned.cross.norm()).float()
    basis = inverse[:, :0]
    for step in range(n_inverse):
        inverse = _orthonormal(factor.solve(inverse), basis)
        basis = torch.cat([basis, inverse], dim=1)
        if step < _FORWARD:
            forward = _orthonormal(learned.product(forward) if step else forward, basis)
            basis = torch.cat([basis, forward], dim=1)
    del factor
    exact = basis.double()  # (M, r), orthonormal to the precision of float32
    inner = _whitening(exact)  # (r, r)
    learned_, held_ = (
        Dense(
            inner.T @ (exact.T @ part.product(exact)) @ inner,
            inner.T @ (exact.T @ part.cross),
            part.total,
            part.square,
        )
        for part in (learned, held)
    )
    return learned_, held_


def _orthonormal(block: Tensor, basis: Tensor) -> Tensor:
    """An orthonormal basis (M, k) of the columns of a block, without what lies in a basis."""
    for _ in range(2):  # once would leave rounding errors
        block = block - basis @ (basis.T @ block)
        block = (block.double() @ _whitening(block.double())).to(block.dtype)
    return block


def _whitening(block: Tensor) -> Tensor:
    """W (k, r) such that the columns of BW are orthonormal, for B (M, k) of rank r."""
    variances, vectors = torch.linalg.eigh(block.T @ block)
    kept = variances > _RANK * variances[-1:]  # none of an empty block
    found: Tensor = vectors[:, kept] / variances[kept].sqrt()
    return found


def in_span(learned: Moments, held: Moments) -> tuple[Dense, Dense, Tensor]:
    """The moments in an orthonormal basis of the space that all rows span, and the basis (M, r)."""
    basis, gram = _span(replace(learned, gram=learned.gram + held.gram).dense().gram)
    # Without rows to learn from, nothing is left; rounding would leave a little.
    of_held = basis.T @ held.product(basis) if learned.trace > 0 else gram  # (r, r)
    inside = [
        Dense(own, basis.T @ part.cross, part.total, part.square)
        for part, own in ((learned, gram - of_held), (held, of_held))
    ]
    return inside[0], inside[1], basis


def _span(upper: Tensor) -> tuple[Tensor, Tensor]:
    """O (M, r) and T (r, r) with G = O·T·Oᵀ, O orthonormal and r the rank of G.

    `upper` (M, M) float64 is G on the CPU, of which the upper triangle is read, and is overwritten.
    About r·M² multiplications.
    """
    # Cholesky with pivots stops at the rank. LAPACK reads columns, so that upper is lower.
    factor, pivots, rank, _ = dpstrf(upper.numpy().T, lower=1, overwrite_a=1)
    root = torch.empty((len(upper), rank), dtype=torch.float64)  # G = root·rootᵀ
    root[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(factor[:, :rank]).tril()
    basis, inner = torch.linalg.qr(root)
    return basis, inner @ inner.T
