"""What rule `least_squares` has learned: sums, rows that are not in them yet, and solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dkvb.rules.least_squares import ridge
from dkvb.rules.least_squares.incremental import Choice, ExtendedFit, Rows, joined
from dkvb.rules.least_squares.samples import Samples
from dkvb.rules.least_squares.sums import Batch, RidgeSums, grow_classes, update

SOLUTIONS = ("unweighted", "balanced")
_WAITING = 4  # one row per so many features may wait


@dataclass(frozen=True, eq=False)
class SumsState:
    """Sums over what was learned: whole numbers, so that equal data give equal bits.

    With many features, rows wait and are added to the sums together, when these are asked for.
    """

    summed: RidgeSums  # over all rows but those that wait
    selected: Tensor  # (M,) int64, how often each pair's weight was its codebook's largest
    samples: Samples | None
    waiting: tuple[Rows, ...] = ()
    choice: Choice | None = None  # of λ, from fewer rows
    earlier: ExtendedFit | None = None  # solution from fewer rows, and the rows learned since

    @cached_property
    def sums(self) -> RidgeSums:
        """Sums over all rows."""
        return update(self.summed, self.batches()) if self.waiting else self.summed

    @cached_property
    def total(self) -> Tensor:
        """Rows of each class (Y,)."""
        total = self.summed.learned.total + self.summed.held.total
        for rows in self.waiting:
            total = total + torch.bincount(rows.class_index, minlength=len(total))
        return total

    @cached_property
    def unit(self) -> float:
        """tr(G)/M, in which λ is measured."""
        trace = self.summed.trace + sum(rows.trace for rows in self.waiting)
        return trace / len(self.selected)

    @cached_property
    def unweighted(self) -> ridge.Solution:
        """The ridge solution, which favours frequent classes; solved when first asked for."""
        if len(self.selected) <= ridge.LARGE:
            return ridge.fit(self.sums, n_rows=float(self.total.sum())).solution
        return self.fit.solution(len(self.total), self.unit)

    @cached_property
    def balanced(self) -> ridge.Solution:
        """The same with scores normalised per class."""
        return ridge.balance(self.unweighted)

    @cached_property
    def fit(self) -> ExtendedFit:
        """A solution and the factor it was found with, for rows that come later.

        λ is chosen again where the number of rows has doubled since.
        """
        if self.earlier is not None and self.is_extended():
            return self.earlier.extended(len(self.total))
        n_rows, choice = float(self.total.sum()), self.choice
        kept = None
        if choice is not None and choice.holds_for(n_rows):
            scored = choice.held_out_scores
            scored = None if scored is None else scored.with_classes(len(self.total))
            kept = choice.penalty / self.unit, scored
        few = 0 < n_rows <= ridge.FEW_OF_LARGE * len(self.selected)
        if few and not bool(self.summed.total.any()):  # no sums of products are needed yet
            phi, class_index, held = joined(self.waiting).batch()
            found = ridge.fit_rows(phi, one_hot(class_index, len(self.total)).double(), held, kept)
        else:
            found = ridge.fit(self.sums, n_rows=n_rows, kept=kept)
        if choice is None or kept is None:
            choice = Choice(found.penalty, n_rows, found.solution.held_out_scores)
        return ExtendedFit(found, choice)

    def is_extended(self) -> bool:
        """Whether the solution follows from an earlier one, at little cost."""
        fitted = self.earlier
        return fitted is not None and fitted.choice.holds_for(float(self.total.sum()))

    def batches(self) -> Iterator[Batch]:
        """The rows that wait."""
        if self.waiting:
            yield joined(self.waiting).batch()

    def may_wait(self, n_rows: int) -> bool:
        """Whether so many more rows need not be added to the sums yet."""
        fitted = self._latest_fit()
        waiting = sum(len(rows) for rows in self.waiting)
        added = waiting if fitted is None else max(waiting, fitted.n_added)
        return added + n_rows <= len(self.selected) // _WAITING

    def with_waiting(
        self, rows: Sequence[Rows], n_classes: int, selected: Tensor, samples: Samples | None
    ) -> SumsState:
        """With more rows that wait; this state stays as it is, and shares its sums."""
        fitted = self._latest_fit()
        summed, waiting = self.summed, self.waiting
        if "sums" in vars(self):
            summed, waiting = self.sums, ()
        return SumsState(
            grow_classes(summed, n_classes),
            selected,
            samples,
            (*waiting, *rows),
            self.latest_choice(),
            None if fitted is None else fitted.with_rows(rows),
        )

    def latest_choice(self) -> Choice | None:
        """The choice of λ that a state with more rows keeps."""
        fitted = self._latest_fit()
        return self.choice if fitted is None else fitted.choice

    def _latest_fit(self) -> ExtendedFit | None:
        found: ExtendedFit | None = vars(self).get("fit", self.earlier)
        return found

    def without_products(self) -> SumsState:
        """Solutions, and what predictions need beside them."""
        frozen = SumsState(self.sums.without_products(), self.selected, None)
        vars(frozen).update({name: getattr(self, name) for name in SOLUTIONS})
        return frozen

    def __getstate__(self) -> dict[str, Any]:
        """Without factors, which are large and follow from the sums."""
        kept = replace(
            self, summed=self.sums, waiting=(), choice=self.latest_choice(), earlier=None
        )
        solved = {name: vars(self)[name] for name in SOLUTIONS if name in vars(self)}
        return vars(kept) | solved
