"""Which pairs voted for which class, and from how many examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.bottleneck import Batch
from dkvb.estimators.learned_state import LearnedState
from dkvb.estimators.novelty import distance_from_keys, novelty


@dataclass(frozen=True)
class Vote:
    """What one pair says: the class it favours most, and from how many examples."""

    codebook: int
    pair: int
    label: Any
    lead: float  # of that label's contribution over the mean contribution of all classes
    examples: int | None  # rows of that class that selected the pair; None if the rule cannot tell
    selected: int  # rows that selected the pair (rule "sgd": in all epochs together)


@dataclass(frozen=True, eq=False)
class Explanation:
    """How an input came to its label: the contributions of its pairs, and what its distance from
    class means adds (rule "counts"), sum to the scores."""

    label: Any
    classes: NDArray[Any]  # (Y,)
    scores: NDArray[np.float64]  # (Y,)
    pairs: NDArray[np.int64]  # (C,) the pair that each codebook read
    contributions: NDArray[np.float64]  # (C, Y)
    examples: NDArray[np.int64] | None  # (C, Y) rows of each class that selected the pair
    selected: NDArray[np.int64]  # (C,)
    novelty: float
    class_means: NDArray[np.float64] | None = None  # (Y,)

    def votes(self, label: Any = None, most: int | None = None) -> list[Vote]:
        """One vote a codebook, the clearest first; only those for `label` if it is given."""
        finite = np.isfinite(self.contributions).all(axis=0)  # classes that have rows
        own = self.contributions[:, finite]
        lead = own - own.mean(axis=1, keepdims=True)  # (C, seen)
        best = lead.argmax(axis=1)
        columns = np.flatnonzero(finite)[best]
        found = [
            Vote(
                codebook=book,
                pair=int(self.pairs[book]),
                label=self.classes[column].item(),
                lead=float(lead[book, best[book]]),
                examples=None if self.examples is None else int(self.examples[book, column]),
                selected=int(self.selected[book]),
            )
            for book, column in enumerate(columns)
        ]
        found = [vote for vote in found if label is None or vote.label == label]
        return sorted(found, key=lambda vote: (-vote.lead, vote.codebook))[:most]

    def __str__(self) -> str:
        voters = [vote.label for vote in self.votes()]
        shares = {label: voters.count(label) for label in dict.fromkeys(voters)}
        share = ", ".join(
            f"{label!r} {n}" for label, n in sorted(shares.items(), key=lambda s: -s[1])
        )
        lines = [
            f"{self.label!r}: novelty {self.novelty:.2f}, votes of {len(voters)} codebooks: {share}"
        ]
        for vote in self.votes(most=5):
            place = f"codebook {vote.codebook}, pair {vote.pair}"
            rows = f"{vote.examples} of " if vote.examples is not None else ""
            lines.append(f"  {place}: {vote.label!r} from {rows}{vote.selected} examples")
        return "\n".join(lines)


def explain(state: LearnedState, batch: Batch) -> Explanation:
    """How one row comes to its label."""
    rule = state.rule
    evidence = rule.evidence(batch)
    classes, order = state.labels.classes_, state.labels.order
    scores = rule.scores(batch).double().cpu().numpy()[0, order]  # (Y,)
    pairs = evidence.codes[0].long().cpu()  # (C,)
    selected = rule.usage().cpu().gather(1, pairs[:, None])[:, 0]
    examples, means = evidence.examples, evidence.class_means
    return Explanation(
        label=classes[scores.argmax()].item(),
        classes=classes,
        scores=scores,
        pairs=pairs.numpy(),
        contributions=evidence.contributions[0].cpu().numpy()[:, order],
        examples=None if examples is None else examples[0].cpu().numpy()[:, order],
        selected=selected.numpy(),
        novelty=float(novelty(state.keys, distance_from_keys(batch))[0]),
        class_means=None if means is None else means[0].cpu().numpy()[order],
    )
