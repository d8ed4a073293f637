"""Status of every experiment: where it was measured, and what is not measurable and why."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from dkvb.benchmark.paper import EXPERIMENTS, load_experiment
from dkvb.benchmark.paper.statements.base import NOT_MEASURED, UNAVAILABLE
from dkvb.benchmark.report.collect import Collection, Group
from dkvb.benchmark.report.formatting import listed, ranges
from dkvb.benchmark.report.verdicts import StatementVerdict

_LENGTHS = {"cifar100": 500, "imagenet": 20}  # epochs per task; the others of the paper: 2,000


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
    name = groups[0].experiment
    where = listed(group.encoder.partition(" (")[0] for group in groups)
    seeds = ranges(r.seed for group in groups for r in group.records if r.seed is not None)
    if kind == "synthetic" or "synthetic" in where:
        how = "measured on synthetic embeddings, whose accuracies are not comparable"
    else:
        place = f"on {where}" if where != "–" else "on points in the plane"
        lengths = {
            "full": _length(name),
            "changed": "with changed settings",
            "quick": "in quick runs only",
        }
        how = f"measured {lengths[kind]} {place}"
    return f"{how} (seeds {seeds})"


def _length(name: str) -> str:
    epochs = getattr(load_experiment(name).PAPER, "epochs", None)
    full = epochs is None or epochs >= _LENGTHS.get(name, 2000)
    return "at full length" if full else f"with {epochs} epochs, our settings"


def status_csv(status: Mapping[str, str]) -> str:
    """Return the status as CSV, for the package."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["experiment", "status"])
    writer.writerows(status.items())
    return text.getvalue()
