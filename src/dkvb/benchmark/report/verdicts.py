"""The paper's numbers and statements beside our records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dkvb.benchmark.paper.encoders import canonical_name
from dkvb.benchmark.paper.statements import evaluate_statements
from dkvb.benchmark.paper.tables import group_by, metric
from dkvb.benchmark.paper.targets import Target, targets
from dkvb.benchmark.records import Number, RunRecord
from dkvb.benchmark.report.collect import Collection, Group

# Measures of targets.csv → metrics of records, which are fractions.
_METRICS = {
    "final accuracy (%)": "final_accuracy",
    "relative difference (%)": "relative_difference",
    "never used (%)": "never_used",
}


@dataclass(frozen=True)
class TargetComparison:
    """A number of the paper, and ours if it was measured."""

    target: Target
    group: Group | None = None
    classifier: str = ""
    mean: Number = None
    std: Number = None
    seeds: int = 0

    @property
    def difference(self) -> Number:
        """Our mean minus the paper's number."""
        return None if self.mean is None else self.mean - self.target.value

    @property
    def verdict(self) -> str:
        """✓ within the tolerance and ✗ outside, for full runs; else why there is no verdict."""
        if self.mean is None or self.group is None:
            return "not measured"
        if self.group.kind != "full":
            return self.group.kind
        return "✓" if self.target.is_met_by(self.mean) else "✗"


def compare_targets(collection: Collection) -> list[TargetComparison]:
    """Return all numbers of the paper, each with one comparison per classifier that measures it."""
    return [line for target in targets() for line in _compare(target, collection)]


def _compare(target: Target, collection: Collection) -> list[TargetComparison]:
    name = _METRICS[target.measure]
    for group in collection.of(target.experiment):
        encoder = group.encoder.partition(" (")[0]  # the bundled subset counts too
        if canonical_name(encoder) != canonical_name(target.encoder):
            continue
        records = [
            r for r in group.records if _measures(target, r) and r.metrics.get(name) is not None
        ]
        comparisons = [
            TargetComparison(
                target, group, classifier, **metric(same, name, 100.0), seeds=len(same)
            )
            for classifier, same in group_by(records, lambda r: r.classifier).items()
        ]
        if comparisons:
            return comparisons
    return [TargetComparison(target)]


def _measures(target: Target, record: RunRecord) -> bool:
    row, _, order = target.row.partition(" (")
    expected = order.rstrip(")") or "class-incremental"
    actual = record.config.get("order", expected)  # none if one record has both
    return record.classifier.split(":")[0] == row and actual == expected


@dataclass(frozen=True)
class Evidence:
    """The evidence of the records of one encoder and kind for or against a statement."""

    encoder: str
    kind: str
    mark: str  # ✓ or ✗
    text: str


@dataclass(frozen=True)
class StatementVerdict:
    """A statement of the paper with all evidence, that of the paper's own settings first."""

    statement: str
    experiments: Sequence[str]
    evidence: Sequence[Evidence]

    @property
    def mark(self) -> str:
        """The mark of the first evidence, or "not measured"."""
        return self.evidence[0].mark if self.evidence else "not measured"


def evaluate_all(collection: Collection) -> list[StatementVerdict]:
    """Return a verdict on every statement, with separate evidence per encoder and kind."""
    variants: dict[tuple[str, str], dict[str, Sequence[RunRecord]]] = {}
    for group in collection.groups:
        variants.setdefault(group.variant, {})[group.experiment] = group.records
    by_variant = {variant: evaluate_statements(records) for variant, records in variants.items()}
    verdicts = []
    for number, empty in enumerate(evaluate_statements({})):
        names = empty.experiment.split(", ")
        order = [group.variant for name in names for group in collection.of(name)]
        evidence = [
            Evidence(*variant, verdict.mark, verdict.evidence)
            for variant in dict.fromkeys(order)
            if (verdict := by_variant[variant][number]).mark != "not measured"
        ]
        verdicts.append(StatementVerdict(empty.statement, names, evidence))
    return verdicts
