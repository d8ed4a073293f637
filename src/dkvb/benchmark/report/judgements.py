"""The paper against our records: its numbers, and its statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dkvb.benchmark.paper._tables import grouped, metric
from dkvb.benchmark.paper.statements import judge
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
class Comparison:
    """A number of the paper, and ours where there is one."""

    target: Target
    group: Group | None = None
    classifier: str = ""
    mean: Number = None
    std: Number = None
    seeds: int = 0

    @property
    def difference(self) -> Number:
        return None if self.mean is None else self.mean - self.target.value

    @property
    def verdict(self) -> str:
        """✓ within the tolerance and ✗ beyond it, of runs of full length; else why not judged."""
        if self.mean is None or self.group is None:
            return "not measured"
        if self.group.kind != "full":
            return self.group.kind
        return "✓" if self.target.met_by(self.mean) else "✗"


def compare(collection: Collection) -> list[Comparison]:
    """Every number of the paper; several lines where several of our classifiers answer to it."""
    return [line for target in targets() for line in _answers(target, collection)]


def _answers(target: Target, collection: Collection) -> list[Comparison]:
    name = _METRICS[target.measure]
    for group in collection.of(target.experiment):
        if group.encoder.partition(" (")[0] != target.encoder:  # the subset in the box counts too
            continue
        own = [r for r in group.records if _is(target, r) and r.metrics.get(name) is not None]
        lines = [
            Comparison(target, group, classifier, **metric(same, name, 100.0), seeds=len(same))
            for classifier, same in grouped(own, lambda r: r.classifier).items()
        ]
        if lines:
            return lines
    return [Comparison(target)]


def _is(target: Target, record: RunRecord) -> bool:
    row, _, order = target.row.partition(" (")
    wanted = order.rstrip(")") or "class-incremental"
    own = record.config.get("order", wanted)  # none where both are in one record
    return record.classifier.split(":")[0] == row and own == wanted


@dataclass(frozen=True)
class Evidence:
    """What the records of one encoder and kind say to a statement."""

    encoder: str
    kind: str
    mark: str  # ✓ or ✗
    text: str


@dataclass(frozen=True)
class Judgement:
    """A statement of the paper, and all evidence, that worth most first."""

    statement: str
    experiments: Sequence[str]
    evidence: Sequence[Evidence]

    @property
    def mark(self) -> str:
        return self.evidence[0].mark if self.evidence else "not measured"


def judge_all(collection: Collection) -> list[Judgement]:
    """Every statement, judged by the records of each encoder and kind apart."""
    variants: dict[tuple[str, str], dict[str, Sequence[RunRecord]]] = {}
    for group in collection.groups:
        variants.setdefault(group.variant, {})[group.experiment] = group.records
    verdicts = {variant: judge(records) for variant, records in variants.items()}
    judgements = []
    for number, empty in enumerate(judge({})):
        names = empty.experiment.split(", ")
        order = [group.variant for name in names for group in collection.of(name)]
        evidence = [
            Evidence(*variant, found.mark, found.evidence)
            for variant in dict.fromkeys(order)
            if (found := verdicts[variant][number]).mark != "not measured"
        ]
        judgements.append(Judgement(empty.statement, names, evidence))
    return judgements
