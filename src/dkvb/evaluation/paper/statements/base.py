"""What a statement is, how records decide it, and the numbers that several statements need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dkvb.evaluation.paper.encoders import canonical_name
from dkvb.evaluation.paper.tables import (
    get_encoder,
    group_by,
    mean_final_accuracy,
    only,
    setting,
)
from dkvb.evaluation.paper.targets import target
from dkvb.evaluation.paper.thresholds import threshold
from dkvb.evaluation.records import RunRecord

Records = Sequence[RunRecord]
Result = tuple[bool, str] | None  # whether the statement holds, and the numbers
ORDERS = ("class-incremental", "iid")

HOLDS, CONTRADICTED, TAUTOLOGY = "holds", "contradicted", "tautology"
UNAVAILABLE, NOT_MEASURED = "not measurable here", "not measured"


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, where it stands, what decides it, and how."""

    text: str
    place: str
    experiments: tuple[str, ...]
    measure: str
    threshold: str
    evaluate: Callable[..., Result] | None = None  # given the records of each experiment
    is_tautology: bool = False  # true by construction: measured only to check the implementation
    unavailable: str = ""  # why it cannot be measured with the embeddings at hand


@dataclass(frozen=True)
class Verdict:
    """A statement, whether the records agree (✓, ✗ or "not measured"), and the evidence."""

    statement: str
    place: str
    experiment: str
    measure: str
    threshold: str
    mark: str
    verdict: str
    evidence: str


def evaluate_with(statements: Sequence[Statement], records: Mapping[str, Records]) -> list[Verdict]:
    """Return a verdict on each statement from records by experiment."""
    verdicts = []
    for statement in statements:
        inputs = [records.get(name, ()) for name in statement.experiments]
        result = (
            statement.evaluate(*inputs) if statement.evaluate is not None and all(inputs) else None
        )
        mark = "not measured" if result is None else "✓" if result[0] else "✗"
        verdicts.append(
            Verdict(
                statement.text,
                statement.place,
                ", ".join(statement.experiments),
                statement.measure,
                statement.threshold,
                mark,
                decide(statement, [] if result is None else [result[0]]),
                "" if result is None else result[1],
            )
        )
    return verdicts


def decide(statement: Statement, holds: Sequence[bool]) -> str:
    """Return the verdict from one result per encoder: a statement must hold on each of them."""
    if not holds:
        return UNAVAILABLE if statement.unavailable else NOT_MEASURED
    if not all(holds):
        return CONTRADICTED
    return TAUTOLOGY if statement.is_tautology else HOLDS


# ------------------------------------------------------------------------- numbers from records
def mean_of(records: Records, classifier: str, order: str) -> float | None:
    """Return the mean final accuracy in percent of one classifier in one order."""
    return mean_final_accuracy(only(records, order=order, classifier=classifier))


def mean_metric(records: Records, name: str, scale: float = 1.0) -> float | None:
    """Return the mean of a metric over records that have it."""
    known = [scale * v for r in records if (v := r.metrics.get(name)) is not None]
    return fmean(known) if known else None


def means_by(records: Records, key: Callable[[RunRecord], Any]) -> dict[Any, float]:
    """Return mean final accuracies in percent by a key, sorted by it."""
    means = {value: mean_final_accuracy(group) for value, group in group_by(records, key).items()}
    return {value: means[value] or 0.0 for value in sorted(means) if means[value] is not None}


def sweep(records: Records, name: str, order: str = "class-incremental") -> dict[Any, float]:
    """Return mean final accuracies in percent by a setting."""
    return means_by(only(records, order=order), setting(name))


def listed(by: Mapping[Any, float]) -> str:
    """Return names and numbers as text."""
    return ", ".join(f"{key}: {value:.2f}" for key, value in by.items())


def name_of(record: RunRecord) -> str:
    """Return the classifier of a record."""
    return record.classifier


def values_within(low: str | None, high: str) -> Callable[[Records], Result]:
    """Return a function that compares the relative difference of values with two thresholds."""

    def evaluate(records: Records) -> Result:
        share = mean_metric(records, "relative_difference", 100)
        if share is None:
            return None
        least = 0.0 if low is None else threshold(low)
        return least <= share <= threshold(high), f"{share:.2f} %"

    return evaluate


def meets_number(experiment: str, row: str, encoder: str) -> Callable[[Records], Result]:
    """Return a function that compares a classifier's final accuracy with the paper's number.

    Keys expired as in the paper's code are compared where they were measured.
    """
    name, _, order = row.partition(" (")
    order = order.rstrip(")") or "class-incremental"

    def evaluate(records: Records) -> Result:
        found = target(experiment, row, encoder)
        if found is None or canonical_name(get_encoder(records)) != canonical_name(encoder):
            return None
        group = only(records, order=order)
        group = [r for r in group if r.classifier.split(":")[0] == name]
        by = means_by(group, name_of)
        if not by:
            return None
        shown = next((by[n] for n in by if "ema-reference" in n), next(iter(by.values())))
        return found.is_met_by(shown), f"paper {found.value:g}, ours {listed(by)}"

    return evaluate


def number(
    experiment: str, row: str, encoder: str, text: str, place: str, unavailable: str = ""
) -> Statement:
    """Return the statement that a classifier reaches the paper's final accuracy."""
    order = "i.i.d." if row.endswith("(iid)") else "class-incremental"
    expiry = ", with the reference expiry of keys if measured" * row.startswith("bottleneck")
    return Statement(
        text,
        place,
        (experiment,),
        f"final accuracy, {order}",
        f"the tolerance of targets.csv{expiry}",
        meets_number(experiment, row, encoder),
        unavailable=unavailable,
    )


def nearly_equal(by: Mapping[Any, float]) -> Result:
    """Compare the range of several final accuracies with the threshold of indifference."""
    if len(by) < 2:
        return None
    return max(by.values()) - min(by.values()) <= threshold("insensitive"), listed(by)


__all__ = [
    "ORDERS",
    "Records",
    "Result",
    "Statement",
    "Verdict",
    "decide",
    "evaluate_with",
    "listed",
    "mean_metric",
    "mean_of",
    "means_by",
    "meets_number",
    "name_of",
    "nearly_equal",
    "number",
    "sweep",
    "threshold",
    "values_within",
]
