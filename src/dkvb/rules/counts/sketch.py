"""Rows kept for calibration, in a sketch whose size does not grow with the number of rows.

One row in 20, picked by a hash of its codes, is added to one of the cells of its class: BUCKETS of
them on each of LEVELS levels, of which level l takes one row in 2^(l + 1). A cell holds sums: of
rows, of their codes, and of a second hash. Sums do not depend on the order of rows, can be merged,
and lose rows again exactly, whichever these are; a sample that drops rows for good, such as the k
lowest hashes, could not be what it would have been without a row that is forgotten later.

A cell whose rows are all the same gives that row back. Whatever the number of rows, some levels
have fewer rows than cells, so that about 1.4 · BUCKETS different rows per class can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.counts import backend, narrowed
from dkvb.rules.base import NOT_LEARNED

KEPT = 20  # one row in this many is kept
BUCKETS, LEVELS = 256, 24  # of a class: enough for 2³¹ distinct rows that are kept
CELLS = BUCKETS * LEVELS


@dataclass(frozen=True, eq=False)
class Sketch:
    """Cells that are not empty, and sums over their rows."""

    cells: Tensor  # (S,) int64, ascending: class index · CELLS + level · BUCKETS + bucket
    times: Tensor  # (S,) int64, rows
    codes: Tensor  # (S, C) int32, or int64 where one needs it: sums of their codes
    checks: Tensor  # (S,) int64, sums of a hash of their codes, which wrap

    def to(self, device: torch.device | str) -> Sketch:
        return Sketch(*(part.to(device) for part in vars(self).values()))

    @property
    def class_index(self) -> Tensor:
        return self.cells // CELLS

    def by_class(self, target: Tensor) -> Sketch:
        """With class y called target[y]; a negative target drops the class."""
        moved = target[self.class_index]
        cells = moved * CELLS + self.cells % CELLS
        kept = moved >= 0
        return added([Sketch(cells, self.times, self.codes, self.checks)._of(kept)])

    def _of(self, chosen: Tensor) -> Sketch:
        return Sketch(*(part[chosen] for part in vars(self).values()))

    def rows(self, n_pairs: int, factors: Tensor) -> tuple[Sketch, Tensor]:
        """The cells whose rows are all the same, with the codes of one of them, and its hash."""
        times, sums = self.times[:, None], self.codes.long()
        codes = torch.div(sums, times, rounding_mode="floor")
        same = (codes * times == sums).all(dim=1) & (codes < n_pairs).all(dim=1)
        one = Sketch(self.cells, self.times, codes.int(), self.checks)._of(same)
        hashes = backend(one.codes.device).hash_codes(one.codes, factors)
        same = bits(6, hashes, 0, 0) * one.times == one.checks
        return one._of(same), hashes[same]


def sketch_of(codes: Tensor, class_index: Tensor, factors: Tensor) -> Sketch:
    """The sketch of kept rows with codes (n, C) int32 and classes (n,)."""
    hashes = backend(codes.device).hash_codes(codes, factors)
    cell = bits(5, hashes, 0, 0)
    lowest = (cell | 1 << (LEVELS - 1)) & -(cell | 1 << (LEVELS - 1))  # the lowest bit that is set
    level = lowest.double().log2().round().long()
    cells = class_index * CELLS + level * BUCKETS + (cell >> LEVELS) % BUCKETS
    return added([Sketch(cells, torch.ones_like(cells), codes, bits(6, hashes, 0, 0))])


def added(parts: Sequence[Sketch], gone: Sketch | None = None) -> Sketch:
    """The sums of all parts, less those that are `gone`; an error where these were not there."""
    signs = [1] * len(parts) + [-1] * (gone is not None)
    every = [*parts, gone] if gone is not None else parts
    cells, group = torch.unique(torch.cat([one.cells for one in every]), return_inverse=True)

    def total(name: str) -> Tensor:
        terms = [sign * getattr(one, name).long() for sign, one in zip(signs, every, strict=True)]
        joined = torch.cat(terms)
        return joined.new_zeros((len(cells), *joined.shape[1:])).index_add_(0, group, joined)

    found = Sketch(cells, total("times"), total("codes"), total("checks"))
    kept = found.times != 0
    if gone is not None:
        empty = found._of(~kept)
        if bool((found.times < 0).any()) or bool(empty.checks.any()) or bool(empty.codes.any()):
            raise ValueError(NOT_LEARNED)
        found = found._of(kept)
    return Sketch(found.cells, found.times, narrowed(found.codes), found.checks)
