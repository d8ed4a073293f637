"""The paper's numbers and statements beside our records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dkvb.evaluation.paper.encoders import canonical_name
from dkvb.evaluation.paper.kinds import KINDS
from dkvb.evaluation.paper.statements import STATEMENTS, decide, evaluate_statements
from dkvb.evaluation.paper.statements.base import (
    CONTRADICTED,
    HOLDS,
    NOT_MEASURED,
    TAUTOLOGY,
    UNAVAILABLE,
)
from dkvb.evaluation.paper.tables import group_by, metric
from dkvb.evaluation.paper.targets import Target, targets
from dkvb.evaluation.records import Number, RunRecord
from dkvb.evaluation.report.collect import Collection, Group

# Measures of targets.csv → metrics of records, which are fractions.
_METRICS = {
    "final accuracy (%)": "final_accuracy",
    "relative difference (%)": "relative_difference",
    "never used (%)": "never_used",
}
VERDICTS = (HOLDS, CONTRADICTED, TAUTOLOGY, UNAVAILABLE, NOT_MEASURED)


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
    place: str
    experiments: Sequence[str]
    measure: str
    threshold: str
    evidence: Sequence[Evidence]
    verdict: str  # "holds", "contradicted", "tautology", "not measurable here", "not measured"
    reason: str  # why it is not measurable here

    @property
    def mark(self) -> str:
        """✓ or ✗, or "not measured"."""
        marks = {HOLDS: "✓", TAUTOLOGY: "✓", CONTRADICTED: "✗"}
        return marks.get(self.verdict, "not measured")

    @property
    def rests_on(self) -> str:
        """The kind of the records that decide: "full", or a smaller one; empty if none do."""
        return self.evidence[0].kind if self.mark != "not measured" else ""

    @property
    def measured_on(self) -> str:
        """The encoders whose records decide, and whether it is one alone."""
        names = list(dict.fromkeys(line.encoder for line in self.evidence if line.encoder))
        return f"{names[0]} only" if len(names) == 1 else ", ".join(names) or "–"


def evaluate_all(collection: Collection) -> list[StatementVerdict]:
    """Return a verdict on every statement, with separate evidence per encoder and kind.

    The evidence closest to the paper's settings decides: it must agree for every encoder. Records
    of synthetic embeddings or of quick runs decide nothing that cannot be measured here.
    """
    variants: dict[tuple[str, str], dict[str, Sequence[RunRecord]]] = {}
    for group in collection.groups:
        variants.setdefault(group.variant, {})[group.experiment] = group.records
    by_variant = {variant: evaluate_statements(records) for variant, records in variants.items()}
    verdicts = []
    for number, statement in enumerate(STATEMENTS):
        order = [g.variant for name in statement.experiments for g in collection.of(name)]
        evidence = [
            Evidence(*variant, found.mark, found.evidence)
            for variant in dict.fromkeys(order)
            if (found := by_variant[variant][number]).mark != "not measured"
        ]
        evidence.sort(key=lambda line: list(KINDS).index(line.kind))
        deciding = [line for line in evidence if line.kind == evidence[0].kind]
        if statement.unavailable and deciding and deciding[0].kind != "full":
            deciding = []
        verdicts.append(
            StatementVerdict(
                statement.text,
                statement.place,
                statement.experiments,
                statement.measure,
                statement.threshold,
                evidence,
                decide(statement, [line.mark == "✓" for line in deciding]),
                statement.unavailable,
            )
        )
    return verdicts


def count_verdicts(verdicts: Sequence[StatementVerdict]) -> dict[str, int]:
    """Return how many statements have each verdict."""
    found = [verdict.verdict for verdict in verdicts]
    return {name: found.count(name) for name in VERDICTS}
