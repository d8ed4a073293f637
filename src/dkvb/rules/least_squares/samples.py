"""Stored samples: rows that rule `least_squares` has learned, so that it can unlearn a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb.rules.base import NOT_LEARNED


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows, as far as is needed to learn or unlearn them again.

    Stored in the order of their hashes and classes, so that they tell nothing of the order they
    came in and equal models have equal samples.
    """

    rows: Tensor  # (n, p) float16, conditioned embeddings
    hashes: Tensor  # (n,) int64, of the embeddings
    class_index: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, chosen: Tensor | slice) -> Samples:
        return Samples(self.rows[chosen], self.hashes[chosen], self.class_index[chosen])

    def to(self, device: torch.device | str) -> Samples:
        return Samples(*(tensor.to(device) for tensor in vars(self).values()))

    def with_(self, other: Samples) -> Samples:
        """These and others, in order."""
        both = joined([self, other])
        by_class = torch.argsort(both.class_index, stable=True)
        return both[by_class[torch.argsort(both.hashes[by_class], stable=True)]]

    def without(self, other: Samples) -> Samples:
        """Those that are left when others are taken out, or an error where one is not there."""
        gone = Counter(zip(other.hashes.tolist(), other.class_index.tolist(), strict=True))
        kept = []
        for sample in zip(self.hashes.tolist(), self.class_index.tolist(), strict=True):
            kept.append(gone[sample] == 0)
            gone[sample] -= not kept[-1]
        if gone.total():
            raise ValueError(NOT_LEARNED)
        return self[torch.tensor(kept, dtype=torch.bool, device=self.hashes.device)]

    def relabelled(self, target: Tensor) -> Samples:
        """With class y called target[y], in order."""
        moved = Samples(self.rows, self.hashes, target[self.class_index])
        return moved[:0].with_(moved)

    def of_all_processes(self) -> Samples:
        """The samples of every process."""
        if process_group.world_size() == 1:
            return self
        parts = (torch.cat(process_group.all_gather(part)) for part in vars(self).values())
        return Samples(*parts)


def joined(parts: Sequence[Samples]) -> Samples:
    """All samples, one after another."""
    return Samples(
        torch.cat([part.rows for part in parts]),
        torch.cat([part.hashes for part in parts]),
        torch.cat([part.class_index for part in parts]),
    )


def no_samples(width: int, device: torch.device) -> Samples:
    """None, of rows of a width."""
    none = torch.zeros(0, dtype=torch.int64, device=device)
    return Samples(torch.zeros((0, width), dtype=torch.float16, device=device), none, none)
