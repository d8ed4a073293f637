"""What learning did to the classes that a model knew before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOLERATED = 0.03  # accuracy that a class may lose without a warning


@dataclass(frozen=True)
class Change:
    """Accuracy per old class before and after, measured on what the model itself has learned."""

    before: dict[Any, float]
    after: dict[Any, float]

    def line(self) -> str:
        """Return the mean accuracy of the old classes, in one line."""
        means = (_mean(self.before), _mean(self.after))
        shown = " before, ".join(f"{100 * mean:.1f} %" for mean in means)
        return f"accuracy on the old classes, leave-one-out: {shown} after"

    def losses(self) -> dict[Any, float]:
        """Return the old classes that lost more than is tolerated, and how much."""
        lost = {label: self.before[label] - self.after[label] for label in self.before}
        return {label: loss for label, loss in lost.items() if loss > TOLERATED + 1e-9}

    def warning(self) -> str | None:
        """Return which old classes lost accuracy; None if none did."""
        losses = self.losses()
        if not losses:
            return None
        worst = sorted(losses, key=lambda label: -losses[label])
        shown = ", ".join(
            f"{label} {100 * self.before[label]:.1f} % to {100 * self.after[label]:.1f} %"
            for label in worst[:5]
        )
        return (
            f"old classes lost more than {100 * TOLERATED:.0f} points: {shown}"
            f"{', …' if len(worst) > 5 else ''}; undo it with dkvb forget"
        )

    def facts(self) -> dict[str, Any]:
        """Return the same for JSON."""
        return {
            "before": {str(label): value for label, value in self.before.items()},
            "after": {str(label): value for label, value in self.after.items()},
            "lost": {str(label): value for label, value in self.losses().items()},
        }


def change_of(before: Any, after: Any) -> Change | None:
    """Return what two states of a classifier say of the old classes; None if they cannot."""
    old, new = (_class_accuracy(classifier) for classifier in (before, after))
    common = [label for label in old or () if label in (new or {})]
    if old is None or new is None or not common:
        return None
    return Change(*({label: found[label] for label in common} for found in (old, new)))


def _class_accuracy(classifier: Any) -> dict[Any, float] | None:
    measure = getattr(classifier, "class_accuracy", None)
    found: dict[Any, float] | None = measure() if callable(measure) else None
    return found


def _mean(values: dict[Any, float]) -> float:
    return sum(values.values()) / len(values)
