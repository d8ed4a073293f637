"""What a classifier says of inputs: label, probability, runner-up, novelty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Answers:
    """Predictions for n inputs, by a classifier of Y classes."""

    labels: Array  # (n,)
    classes: Array  # (Y,)
    probabilities: Array | None  # (n, Y), where the classifier has them
    novelty: Array | None  # (n,)
    made: list[dict[str, Any]] | None = None  # what `records` returns, where it was made before

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> Answers:
        """Return the answers for some of the inputs."""
        which = slice(start, stop)
        return Answers(
            self.labels[which],
            self.classes,
            None if self.probabilities is None else self.probabilities[which],
            None if self.novelty is None else self.novelty[which],
            None if self.made is None else self.made[which],
        )

    def recorded(self) -> Answers:
        """Return the same with its records made, which takes as long for one input as for many."""
        return replace(self, made=self.records())

    @classmethod
    def joined(cls, parts: list[Answers]) -> Answers:
        """Return the answers of all parts; a class that a part did not know has probability 0."""
        classes = np.unique(np.concatenate([one.classes for one in parts]))
        probabilities, novelty = [], []
        for one in parts:
            if one.probabilities is not None:
                wide = np.zeros((len(one), len(classes)))
                wide[:, np.searchsorted(classes, one.classes)] = one.probabilities
                probabilities.append(wide)
            if one.novelty is not None:
                novelty.append(one.novelty)
        return cls(
            np.concatenate([one.labels for one in parts]),
            classes,
            np.concatenate(probabilities) if probabilities else None,
            np.concatenate(novelty) if novelty else None,
        )

    def records(self, top: int | None = None) -> list[dict[str, Any]]:
        """Return one dictionary per input, of plain values; `top` is how many classes to name."""
        if self.made is not None and top is None:
            return self.made
        ranked = self._ranked(top)
        records = []
        for i, label in enumerate(self.labels.tolist()):
            record: dict[str, Any] = {"label": label}
            if ranked is not None:
                record |= _of_probabilities(label, ranked[i], top)
            if self.novelty is not None:
                record["novelty"] = float(self.novelty[i])
            records.append(record)
        return records

    def _ranked(self, top: int | None) -> list[list[tuple[Any, float]]] | None:
        """Classes and probabilities per input, the likeliest first."""
        if self.probabilities is None:
            return None
        most = min(len(self.classes), max(2, top or 0))
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :most]  # (n, most)
        values = self.probabilities[np.arange(len(order))[:, None], order]
        return [
            list(zip(labels, numbers, strict=True))
            for labels, numbers in zip(self.classes[order].tolist(), values.tolist(), strict=True)
        ]


def _of_probabilities(
    label: Any, ranked: list[tuple[Any, float]], top: int | None
) -> dict[str, Any]:
    own = next((p for name, p in ranked if name == label), None)  # None: answered "unknown"
    second = next(((name, p) for name, p in ranked if name != label), (None, None))
    record = {
        "probability": own,
        "runner_up": second[0],
        "runner_up_probability": second[1],
    }
    if top is not None:
        record["top"] = [{"label": name, "probability": p} for name, p in ranked[:top]]
    return record
