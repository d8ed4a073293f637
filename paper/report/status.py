"""Status of every experiment: where it was measured, with how many epochs and seeds."""

from __future__ import annotations

from collections.abc import Sequence

from dkvb.evaluation.records import RunRecord
from paper.experiments import EXPERIMENTS, load_experiment
from paper.kinds import get_epochs
from paper.report.collect import Collection, Group
from paper.report.formatting import listed, ranges
from paper.tables import group_by

# Epochs per task where the paper has an experiment: 2,000, but for these.
_LENGTHS = {"cifar100": 500, "imagenet": 20}
_PAPER_EPOCHS = 2000


def make_status(collection: Collection) -> dict[str, str]:
    """Return one line per experiment."""
    return {
        name: "; ".join(
            _describe(kind, groups)
            for kind, groups in group_by(collection.of(name), lambda group: group.kind).items()
        )
        or "not measured"
        for name in EXPERIMENTS
    }


def _describe(kind: str, groups: Sequence[Group]) -> str:
    where = listed(group.encoder.partition(" (")[0] for group in groups)
    if kind == "synthetic":
        measured = "measured on synthetic embeddings, whose accuracies are not comparable"
    else:
        data = f"on {where}" if where != "–" else "on points in the plane"
        measured = f"measured {_length(kind, groups)} {data}"
    return f"{measured} ({_seeds(groups)})"


def _length(kind: str, groups: Sequence[Group]) -> str:
    if kind != "full":
        numbers = sorted(get_epochs(r for g in groups for r in g.records))
        small = "size and length" if kind == "quick" else "length"
        return f"at reduced {small}" + f" ({listed(map(str, numbers))} epochs)" * bool(numbers)
    name = groups[0].experiment
    epochs = getattr(load_experiment(name).PAPER, "epochs", None)
    if epochs is None or epochs >= _LENGTHS.get(name, _PAPER_EPOCHS):
        return "at full length"
    return f"at a length of our choice ({epochs} epochs; the paper gives none)"


def _seeds(groups: Sequence[Group]) -> str:
    """Return the seeds, and those of classifiers that have fewer."""
    records = [record for group in groups for record in group.records]
    by = group_by(records, lambda r: r.classifier)
    usual = _seeds_of(records)
    fewer = {name: seeds for name, same in by.items() if (seeds := _seeds_of(same)) != usual}
    return "; ".join([usual, *(f"{name}: {seeds}" for name, seeds in fewer.items())])


def _seeds_of(records: Sequence[RunRecord]) -> str:
    numbers = ranges(r.seed for r in records if r.seed is not None)
    return f"{'seed' if numbers.isdigit() else 'seeds'} {numbers}"
