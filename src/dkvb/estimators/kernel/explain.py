"""Which learned examples decided, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.estimators.kernel.state import KernelState


@dataclass(frozen=True)
class Influence:
    """What one learned example contributed to the score of the predicted label."""

    id: Any  # that the caller gave, or None
    label: Any
    share: float  # of all contributions in favour
    contribution: float  # to the score; negative: against
    similarity: float  # k(x, example) / √(k(x, x) · k(example, example))


@dataclass(frozen=True, eq=False)
class KernelExplanation:
    """How an input came to its label: contributions add up to the score of that label."""

    label: Any
    classes: NDArray[Any]  # (Y,)
    scores: NDArray[np.float64]  # (Y,)
    influences: tuple[Influence, ...]  # the largest contributions in favour first
    novelty: float

    def __str__(self) -> str:
        lines = [f"{self.label!r}: novelty {self.novelty:.2f}, decided by"]
        for one in self.influences[:5]:
            name = "" if one.id is None else f" {one.id!r}"
            lines.append(f"  {one.share:6.1%} example{name} of {one.label!r}")
        return "\n".join(lines)


def explain(state: KernelState, x: Tensor, novelty: float, n: int) -> KernelExplanation:
    """The n learned examples that decided for one embedding x (1, m)."""
    s, examples = state.solution, state.examples
    assert s is not None
    scores = state.scores(x)[0]
    best = int(scores.argmax())
    z = s.conditioned(x)
    kernel = s.function(z, s.z, s.squares)[0].double()
    contributions = (kernel * s.alpha[:, best]).cpu() * state.factors[best]  # (N,)
    size = (s.function.diagonal(z) * s.function.diagonal(s.z)).double().sqrt().clamp(min=1e-300)
    similarity = (kernel / size).cpu()
    in_favour = float(contributions.clamp(min=0).sum())
    classes = state.labels.classes_
    top = contributions.topk(min(n, len(contributions))).indices.tolist()
    hashes = s.hashes if s.landmarks is None else s.hashes[s.landmarks]
    first = torch.searchsorted(examples.hashes, hashes[top])
    influences = tuple(
        Influence(
            id=None if examples.ids is None else examples.ids[place],
            label=classes[int(examples.targets[place])].item(),
            share=float(contributions[row].clamp(min=0)) / in_favour if in_favour else 0.0,
            contribution=float(contributions[row]),
            similarity=float(similarity[row]),
        )
        for row, place in zip(top, first.tolist(), strict=True)
    )
    return KernelExplanation(classes[best].item(), classes, scores.numpy(), influences, novelty)
