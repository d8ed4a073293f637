"""Explain a prediction by the pairs that voted for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Vote:
    """The class that one pair favours most."""

    codebook: int
    pair: int
    label: Any
    lead: float  # of that label's contribution over the mean contribution of all classes
    selected: int  # how often learning selected the pair, in all epochs together


@dataclass(frozen=True, eq=False)
class Explanation:
    """The contributions of an input's pairs to the scores of the classes, which they sum to."""

    label: Any
    classes: NDArray[Any]  # (Y,)
    scores: NDArray[np.float64]  # (Y,)
    pairs: NDArray[np.int64]  # (C,) the pair that each codebook read
    contributions: NDArray[np.float64]  # (C, Y)
    selected: NDArray[np.int64]  # (C,)
    novelty: float

    def votes(self, label: Any = None, most: int | None = None) -> list[Vote]:
        """Return one vote per codebook, the clearest first; only those for `label` if given."""
        lead = self.contributions - self.contributions.mean(axis=1, keepdims=True)  # (C, Y)
        best = lead.argmax(axis=1)
        votes = [
            Vote(
                codebook=book,
                pair=int(self.pairs[book]),
                label=self.classes[column].item(),
                lead=float(lead[book, column]),
                selected=int(self.selected[book]),
            )
            for book, column in enumerate(best)
        ]
        votes = [vote for vote in votes if label is None or vote.label == label]
        return sorted(votes, key=lambda vote: (-vote.lead, vote.codebook))[:most]

    def __str__(self) -> str:
        voters = [vote.label for vote in self.votes()]
        shares = {label: voters.count(label) for label in dict.fromkeys(voters)}
        share = ", ".join(
            f"{label!r} {n}" for label, n in sorted(shares.items(), key=lambda s: -s[1])
        )
        lines = [
            f"{self.label!r}: novelty {self.novelty:.2f}, votes of {len(voters)} codebooks: {share}"
        ]
        lines += [
            f"  codebook {vote.codebook}, pair {vote.pair}: {vote.label!r}, "
            f"selected {vote.selected} times"
            for vote in self.votes(most=5)
        ]
        return "\n".join(lines)
