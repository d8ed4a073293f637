"""Numbers of the paper, each with our tolerance and its section of the paper."""

from __future__ import annotations

from typing import Any, NamedTuple

from dkvb.evaluation.records import Number
from paper.encoders import canonical_name
from paper.thresholds import threshold

ACCURACY, DIFFERENCE, UNUSED = "final accuracy (%)", "relative difference (%)", "never used (%)"


class Target(NamedTuple):
    """One number of the paper."""

    experiment: str
    row: str
    encoder: str
    value: float
    source: str
    measure: str = ACCURACY

    @property
    def tolerance(self) -> float:
        """How far ours may be from it, in its unit."""
        if self.measure == ACCURACY:
            return threshold("accuracy")
        return round(threshold("measured_share") * self.value, 2)

    def is_met_by(self, ours: float) -> bool:
        """Return whether a number of ours is within the tolerance."""
        return abs(ours - self.value) <= self.tolerance


_FIGURE_3, _D4, _TABLE_1 = "section 5.2, Figure 3", "appendix D.4", "appendix E.2, Table 1"
TARGETS: tuple[Target, ...] = (
    Target("cifar10", "bottleneck", "resnet50", 81.5, _FIGURE_3),
    Target("cifar10", "bottleneck", "clip", 91.3, _FIGURE_3),
    Target("cifar10", "bottleneck", "swav", 66.3, _FIGURE_3),
    Target("cifar10", "bottleneck", "dino", 62.5, _FIGURE_3),
    Target("cifar10", "bottleneck", "convmixer", 77.3, _FIGURE_3),
    Target("cifar10", "sdmlp", "convmixer", 71, f"{_FIGURE_3}, as reported by its authors"),
    Target("cifar100", "bottleneck", "resnet50", 54.7, _D4),
    Target("cifar100", "bottleneck", "clip", 64, _D4),
    Target("cifar100", "sdmlp", "convmixer", 43, f"{_D4}, as reported by its authors"),
    Target("imagenet", "bottleneck", "clip", 49.0, _D4),
    Target("imagenet", "bottleneck (iid)", "clip", 49.9, _D4),
    Target("values", "bottleneck", "resnet50", 2.19, _TABLE_1, DIFFERENCE),
    Target("values", "bottleneck", "clip", 2.09, _TABLE_1, DIFFERENCE),
    Target("values", "bottleneck", "dino", 2.2, _TABLE_1, DIFFERENCE),
    Target("values", "bottleneck", "swav", 2.2, _TABLE_1, DIFFERENCE),
    Target("values", "bottleneck", "convmixer", 3.07, _TABLE_1, DIFFERENCE),
    Target("codes", "ema-reference", "resnet50", 28, "appendix E.3", UNUSED),
)


def target(experiment: str, row: str, encoder: str) -> Target | None:
    """Return the paper's number for a row of an experiment's table, or None.

    >>> target("cifar10", "bottleneck", "resnet50").value
    81.5
    >>> target("cifar10", "bottleneck", "clip_vit_b32") == target("cifar10", "bottleneck", "clip")
    True
    """
    wanted = canonical_name(encoder)
    known = (t for t in TARGETS if (t.experiment, t.row) == (experiment, row))
    return next((t for t in known if canonical_name(t.encoder) == wanted), None)


def beside(experiment: str, row: str, encoder: str, ours: dict[str, Number]) -> dict[str, Any]:
    """Return table columns with the paper's number: ✓ within the tolerance, ✗ outside."""
    known = target(experiment, row, encoder)
    if known is None:
        return {}
    mean = ours["mean"]
    met = "" if mean is None else "✓" if known.is_met_by(mean) else "✗"
    return {"paper": known.value, "within": f"±{known.tolerance:g} {met}".strip()}
