"""Rows learned after a fit, and the solution that they change at little cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from dkvb.rules.least_squares.choice import HeldOutScores
from dkvb.rules.least_squares.ridge import Fit, Solution, solution_of
from dkvb.rules.least_squares.sums import Batch


@dataclass(frozen=True, eq=False)
class Rows:
    """Features and classes of some rows."""

    phi: Tensor  # (k, M) float32, which holds whole numbers up to 2²⁴
    class_index: Tensor  # (k,) int64
    held: Tensor  # (k,) bool

    def __len__(self) -> int:
        return len(self.class_index)

    @cached_property
    def trace(self) -> float:
        """Σ‖φ‖²: what the rows add to tr(G)."""
        return float(self.phi.double().square().sum())

    def batch(self) -> Batch:
        """What `sums.update` takes."""
        return self.phi.double(), self.class_index, self.held


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows, one after another."""
    return Rows(
        torch.cat([part.phi for part in parts]),
        torch.cat([part.class_index for part in parts]),
        torch.cat([part.held for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """A λ, kept until the number of rows has doubled."""

    penalty: float  # λ as it is added to G
    n_rows: float  # that were learned when it was chosen
    held_out_scores: HeldOutScores | None

    def holds_for(self, n_rows: float) -> bool:
        """Whether λ need not be chosen again."""
        return n_rows < 2 * self.n_rows


@dataclass(frozen=True, eq=False)
class Extension:
    """What solving needs of rows Φ (k, M), learned after a fit with A = G + λI and values V₀."""

    weights: Tensor  # (M, k), W = A⁻¹Φᵀ
    system: Tensor  # (k, k), I + ΦW
    residuals: Tensor  # (k, Y), targets − ΦV₀
    cross: Tensor  # (M, Y), Σφyᵀ over all rows


@dataclass(frozen=True, eq=False)
class ExtendedFit:
    """A fit, and rows learned since.

    With more rows Φ of targets y, (A + ΦᵀΦ)V = Q + Φᵀy. By the Woodbury identity,
    V = V₀ + W(I + ΦW)⁻¹(y − ΦV₀): nothing of size M² changes. V always follows from V₀, so that
    rounding errors do not accumulate.
    """

    fit: Fit
    choice: Choice
    extension: Extension | None = None
    new: tuple[Rows, ...] = ()  # rows that the extension lacks

    @property
    def n_added(self) -> int:
        """Number of rows learned since the fit."""
        known = 0 if self.extension is None else len(self.extension.system)
        return known + sum(len(part) for part in self.new)

    def with_rows(self, rows: Sequence[Rows]) -> ExtendedFit:
        """With more rows, which are solved for when `extended` is called."""
        return replace(self, new=(*self.new, *rows))

    def extended(self, n_classes: int) -> ExtendedFit:
        """With all rows in the extension, k systems of equations for k rows that were not."""
        if not self.new or self.fit.factor is None:
            return self
        rows, before = joined(self.new), self.extension
        phi, targets = rows.phi.double(), one_hot(rows.class_index, n_classes).double()
        weights = self.fit.factor.solve(phi.T)  # (M, k)
        system = phi @ weights
        system.diagonal().add_(1.0)
        residuals = targets - phi @ _with_columns(self.fit.solution.values, n_classes)
        cross = self.fit.cross if before is None else before.cross
        cross = torch.addmm(_with_columns(cross, n_classes), phi.T, targets)
        if before is not None:
            between = phi @ before.weights  # (k, earlier k)
            upper = torch.cat([before.system, between.T], dim=1)
            system = torch.cat([upper, torch.cat([between, system], dim=1)])
            weights = torch.cat([before.weights, weights], dim=1)
            residuals = torch.cat([_with_columns(before.residuals, n_classes), residuals])
        return replace(self, extension=Extension(weights, system, residuals, cross), new=())

    def solution(self, n_classes: int, unit: float) -> Solution:
        """The solution from all rows in the extension, where tr(G)/M is `unit`."""
        if self.extension is None and n_classes == self.fit.cross.shape[1]:
            return self.fit.solution
        scored = self.choice.held_out_scores
        scored = None if scored is None else scored.with_classes(n_classes)
        values, known = _with_columns(self.fit.solution.values, n_classes), self.extension
        cross = _with_columns(self.fit.cross, n_classes)
        if known is not None:
            factor = torch.linalg.cholesky(known.system)
            inner = torch.cholesky_solve(_with_columns(known.residuals, n_classes), factor)
            values = torch.addmm(values, known.weights, inner)
            cross = _with_columns(known.cross, n_classes)
        return solution_of(values, cross, self.fit.penalty, self.fit.penalty / unit, scored)


def _with_columns(values: Tensor, n_columns: int) -> Tensor:
    """The same with columns of zeros for what is new."""
    new = n_columns - values.shape[1]
    return pad(values, (0, new)) if new else values
