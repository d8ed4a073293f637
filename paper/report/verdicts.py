"""The paper's numbers and claims beside our records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dkvb.evaluation.records import Number, RunRecord
from paper.claims import CLAIMS, Claim, Finding, decide, judge_records
from paper.encoders import canonical_name, is_of_the_paper
from paper.kinds import KINDS
from paper.report.collect import Collection, Group
from paper.tables import group_by, metric
from paper.targets import ACCURACY, DIFFERENCE, TARGETS, UNUSED, Target

# Metrics of records, which are fractions, by the measure of a target.
_METRICS = {ACCURACY: "final_accuracy", DIFFERENCE: "relative_difference", UNUSED: "never_used"}


@dataclass(frozen=True)
class Comparison:
    """A number of the paper, and ours if it was measured."""

    target: Target
    group: Group | None = None
    classifier: str = ""
    mean: Number = None
    std: Number = None

    @property
    def verdict(self) -> str:
        """✓ within the tolerance and ✗ outside, for full runs; else why there is no verdict."""
        if self.mean is None or self.group is None:
            return "not measured"
        if self.group.kind != "full":
            return self.group.kind
        return "✓" if self.target.is_met_by(self.mean) else "✗"


def compare(collection: Collection) -> list[Comparison]:
    """Return every number of the paper, with ours beside it."""
    return [_compare(target, collection) for target in TARGETS]


def _compare(target: Target, collection: Collection) -> Comparison:
    name = _METRICS[target.measure]
    for group in collection.of(target.experiment):
        encoder = group.encoder.partition(" (")[0]  # the bundled subset counts too
        if canonical_name(encoder) != canonical_name(target.encoder):
            continue
        records = [
            r for r in group.records if _measures(target, r) and r.metrics.get(name) is not None
        ]
        by = group_by(records, lambda r: r.classifier)
        if by:
            # Keys that expire as in the paper's code are the ones to compare with its numbers.
            chosen = next((one for one in by if "ema-reference" in one), next(iter(by)))
            return Comparison(target, group, chosen, **metric(by[chosen], name, 100.0))
    return Comparison(target)


def _measures(target: Target, record: RunRecord) -> bool:
    row, _, order = target.row.partition(" (")
    expected = order.rstrip(")") or "class-incremental"
    actual = record.config.get("order", expected)  # none if one record has both
    return record.classifier.split(":")[0] == row and actual == expected


class Evidence(NamedTuple):
    """A finding from the records of one encoder and kind."""

    encoder: str
    kind: str
    finding: Finding


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper with all evidence, that of the paper's own settings first."""

    claim: Claim
    verdict: str
    evidence: Sequence[Evidence]


def judge(collection: Collection) -> list[Verdict]:
    """Return a verdict on every claim. Runs that are not full are shown, and decide nothing."""
    by_claim: dict[str, list[Evidence]] = {}
    for variant in dict.fromkeys(group.variant for group in collection.groups):
        records = {g.experiment: g.records for g in collection.groups if g.variant == variant}
        for claim, finding in judge_records(records):
            by_claim.setdefault(claim.name, []).append(Evidence(*variant, finding))
    verdicts = []
    for claim in CLAIMS:
        evidence = sorted(
            by_claim.get(claim.name, []),
            key=lambda line: (list(KINDS).index(line.kind), not is_of_the_paper(line.encoder)),
        )
        full = [line for line in evidence if line.kind == "full"]
        of_paper = [line.finding for line in full if is_of_the_paper(line.encoder)]
        others = [line.finding for line in full if not is_of_the_paper(line.encoder)]
        verdicts.append(Verdict(claim, decide(claim, of_paper, others), evidence))
    return verdicts
