"""Status of every experiment: where it was measured, and what is not measurable and why."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from dkvb.evaluation.paper import EXPERIMENTS, load_experiment
from dkvb.evaluation.paper.kinds import get_epochs
from dkvb.evaluation.paper.statements.base import NOT_MEASURED, UNAVAILABLE
from dkvb.evaluation.paper.tables import group_by
from dkvb.evaluation.records import RunRecord
from dkvb.evaluation.report.collect import Collection, Group
from dkvb.evaluation.report.formatting import listed, ranges
from dkvb.evaluation.report.verdicts import StatementVerdict

# Epochs per task where the paper has an experiment: 2,000, but for these.
_LENGTHS = {"cifar100": 500, "imagenet": 20}
_PAPER_EPOCHS = 2000


def make_status(collection: Collection, verdicts: Sequence[StatementVerdict]) -> dict[str, str]:
    """Return one line per experiment."""
    status = {}
    for name in EXPERIMENTS:
        found = [_describe(group) for group in _merged(collection.of(name))]
        lines = found or ["not measured"]
        reasons = listed(
            v.reason for v in verdicts if name in v.experiments and v.verdict == UNAVAILABLE
        )
        if reasons != "–":
            lines.append(f"not measurable here: {reasons}")
        open_ones = [
            f"“{v.statement}”"
            for v in verdicts
            if found and name in v.experiments and v.verdict == NOT_MEASURED
        ]
        if open_ones:
            lines.append(f"not measured yet: {', '.join(open_ones)}")
        status[name] = "; ".join(lines)
    return status


def _merged(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """Return groups of equal kind together."""
    by: dict[str, list[Group]] = {}
    for group in groups:
        by.setdefault(group.kind, []).append(group)
    return list(by.items())


def _describe(kind_and_groups: tuple[str, list[Group]]) -> str:
    kind, groups = kind_and_groups
    where = listed(group.encoder.partition(" (")[0] for group in groups)
    if kind == "synthetic" or "synthetic" in where:
        how = "measured on synthetic embeddings, whose accuracies are not comparable"
        how += ", with changed settings" * (kind == "changed")
    else:
        place = f"on {where}" if where != "–" else "on points in the plane"
        how = f"measured {_length(kind, groups)} {place}"
    return f"{how} ({_seeds(groups)})"


def _length(kind: str, groups: Sequence[Group]) -> str:
    name = groups[0].experiment
    if kind != "full":
        found = sorted(get_epochs(r for g in groups for r in g.records))
        small = "size and length" if kind == "quick" else "length"
        return f"at reduced {small}" + f" ({listed(map(str, found))} epochs)" * bool(found)
    epochs = getattr(load_experiment(name).PAPER, "epochs", None)
    if epochs is None or epochs >= _LENGTHS.get(name, _PAPER_EPOCHS):
        return "at full length"
    return f"at a length of our choice ({epochs} epochs; the paper gives none)"


def _seeds(groups: Sequence[Group]) -> str:
    """Return the seeds, and those of classifiers that have fewer."""
    records = [record for group in groups for record in group.records]
    own = {
        name: _seeds_of(same) for name, same in group_by(records, lambda r: r.classifier).items()
    }
    usual = _seeds_of(records)
    return "; ".join(
        [usual, *(f"{name}: {seeds}" for name, seeds in own.items() if seeds != usual)]
    )


def _seeds_of(records: Sequence[RunRecord]) -> str:
    found = ranges(r.seed for r in records if r.seed is not None)
    return f"{'seed' if found.isdigit() else 'seeds'} {found}"


def status_csv(status: Mapping[str, str]) -> str:
    """Return the status as CSV, for the package."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["experiment", "status"])
    writer.writerows(status.items())
    return text.getvalue()
