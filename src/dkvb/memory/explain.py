"""Which learned examples decided, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.examples import Examples
from dkvb.memory.kernel import squared_distances, squared_norms

if TYPE_CHECKING:
    from dkvb.memory.state import KernelState


@dataclass(frozen=True)
class Influence:
    """What one point contributed to the score of the predicted label."""

    id: Any  # of the example, or of the nearest of several; None where it has none
    label: Any
    share: float  # of all contributions in favour
    contribution: float  # to the score; negative: against
    similarity: float  # of the input and the point
    rows: int  # examples that the point stands for


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
            many = "example" if one.rows == 1 else f"{one.rows} examples"
            many += ", nearest" if name and one.rows > 1 else ""
            lines.append(f"  {one.share:6.1%} {many}{name} of {one.label!r}")
        return "\n".join(lines)


def explain(state: KernelState, x: NDArray[np.float32], n: int) -> KernelExplanation:
    """The n points that decided for one embedding x (1, m)."""
    s = state.solution
    assert s is not None
    scores, novelty = state.scores_and_novelty(x)
    best = int(scores[0].argmax())
    z = s.by(x)
    similarity = np.exp(
        -s.gamma * squared_distances(z.astype(s.rows.dtype), s.rows, s.squares.array)[0]
    )
    contributions = similarity * s.values[:, best] * state.factors[best]  # (N,)
    in_favour = float(np.maximum(contributions, 0).sum())
    classes = state.labels.classes_
    named = np.nonzero(s.targets >= 0)[0]  # a point that only corrects others has no label
    top = named[np.argsort(-contributions[named], kind="stable")[:n]]
    influences = tuple(
        Influence(
            id=_nearest_id(state, int(point), z),
            label=classes[int(s.targets[point])].item(),
            share=max(float(contributions[point]), 0) / in_favour if in_favour else 0.0,
            contribution=float(contributions[point]),
            similarity=float(similarity[point]),
            rows=int(s.counts[point]),
        )
        for point in top
    )
    return KernelExplanation(
        classes[best].item(), classes, scores[0], influences, float(novelty[0])
    )


def _nearest_id(state: KernelState, point: int, z: NDArray[Any]) -> Any:
    """The id of the example of a point that is nearest to a conditioned row z (1, p)."""
    memory, s = state.memory, state.solution
    assert s is not None
    if not isinstance(memory, Examples) or memory.ids is None:
        return None
    members = np.nonzero(s.point_of == point)[0]
    if len(members) > 1:
        rows = s.by(memory.embeddings(members))
        members = members[np.argsort(squared_norms(rows - z), kind="stable")]
    return memory.ids[members[0]] if len(members) else None
