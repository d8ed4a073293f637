"""What learning did to the classes that a model knew before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOLERATED = 0.03  # accuracy that a class may lose without a warning


@dataclass(frozen=True)
class Change:
    """Accuracy per old class before and after."""

    before: dict[Any, float]
    after: dict[Any, float]
    kind: str  # of the evidence: "leave-one-out" or "held-out"

    def line(self) -> str:
        """Return the mean accuracy of the old classes, in one line."""
        means = (_mean(self.before), _mean(self.after))
        shown = " before, ".join(f"{100 * mean:.1f} %" for mean in means)
        return f"accuracy on the old classes, {self.kind}: {shown} after"

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
            f"{', …' if len(worst) > 5 else ''}"
        )

    def facts(self) -> dict[str, Any]:
        """Return the same for JSON."""
        return {
            "kind": self.kind,
            "before": {str(label): value for label, value in self.before.items()},
            "after": {str(label): value for label, value in self.after.items()},
            "lost": {str(label): value for label, value in self.losses().items()},
        }


def change_of(before: Any, after: Any, held_out: tuple[Any, Any] | None = None) -> Change | None:
    """Return what learning did to the old classes, by held-out X (n, m) and y (n,) if given.

    Otherwise by what the classifier measures itself (`class_accuracy`), by leave-one-out; None
    where it does not.
    """
    if held_out is not None:
        old, new = (_held_out_accuracy(classifier, *held_out) for classifier in (before, after))
    else:
        old, new = (_class_accuracy(classifier) for classifier in (before, after))
    common = [label for label in old if label in new]
    if not common:
        return None
    kind = "held-out" if held_out else getattr(after, "loo_kind_", "leave-one-out")
    old, new = ({label: found[label] for label in common} for found in (old, new))
    return Change(old, new, kind)


def can_forget(classifier: Any) -> bool:
    """Return True if the classifier unlearns examples."""
    return hasattr(classifier, "forget")


def _class_accuracy(classifier: Any) -> dict[Any, float]:
    measure = getattr(classifier, "class_accuracy", None)
    if measure is None or not len(classifier.classes_):  # all of which may have been forgotten
        return {}
    return measure() or {}


def _held_out_accuracy(classifier: Any, X: Any, y: Any) -> dict[Any, float]:
    if not len(classifier.classes_):
        return {}
    right = classifier.predict(X) == y  # (n,)
    known = set(classifier.classes_.tolist())
    labels = [label for label in dict.fromkeys(y.tolist()) if label in known]
    return {label: float(right[y == label].mean()) for label in labels}


def _mean(values: dict[Any, float]) -> float:
    return sum(values.values()) / len(values)
