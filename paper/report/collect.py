"""Records in a folder, grouped by experiment, encoder and kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.records import RunRecord, read_records
from paper.experiment import read_experiment_name
from paper.experiments import EXPERIMENTS, load_experiment
from paper.kinds import KINDS, classify_records, get_variant
from paper.tables import group_by

Rows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Group:
    """Records of one experiment, encoder and kind, with their table."""

    experiment: str
    encoder: str  # empty where there is none
    kind: str  # of KINDS
    records: Sequence[RunRecord]
    rows: Rows

    @property
    def variant(self) -> tuple[str, str]:
        """Encoder and kind: groups of different experiments with equal ones belong together."""
        return self.encoder, self.kind


@dataclass(frozen=True)
class Collection:
    """All groups, in the order of the experiments, and notes on what was left out."""

    groups: Sequence[Group]
    notes: Sequence[str]

    def of(self, experiment: str) -> list[Group]:
        """Return the groups of one experiment, the closest to the paper first."""
        return [group for group in self.groups if group.experiment == experiment]

    @property
    def missing(self) -> list[str]:
        """Experiments without records."""
        return [name for name in EXPERIMENTS if not self.of(name)]


def collect(folder: Path) -> Collection:
    """Read every `records.jsonl` in the folder and below it.

    The experiment is that of the `summary.json` beside the records, or else the folder's name.
    """
    if not folder.is_dir():
        raise ValueError(f"FOLDER: expected a folder with records of experiments; got {folder}")
    notes: list[str] = []
    runs_by_group: dict[tuple[str, str, str], dict[str, RunRecord]] = {}
    for path in sorted(folder.rglob("records.jsonl")):
        shown = path.relative_to(folder.parent if path.parent == folder else folder).as_posix()
        experiment = _experiment_of(path.parent)
        if experiment is None:
            notes.append(f"{shown} is left out: it belongs to no experiment of the paper.")
            continue
        records, damaged = read_records(path)
        if damaged:
            notes.append(f"{shown}: {_lines(damaged)} left out.")
        for (encoder, changes), same in group_by(records, get_variant).items():
            shown_as = f"{encoder} ({changes})" if changes else encoder
            known = runs_by_group.setdefault(
                (experiment, shown_as, classify_records(experiment, same)), {}
            )
            # Of two records of one run, such as those of two versions, the later one counts.
            known |= {_identity(record): record for record in same}
    groups = [
        group
        for key, runs in runs_by_group.items()
        if (group := _group(*key, list(runs.values()), notes))
    ]
    if not groups:
        raise ValueError(
            f"FOLDER: expected records.jsonl in {folder} or in folders below it; got "
            f"none{' of an experiment' * bool(notes)}; "
            f"begin with: python -m paper run toy --quick --out {folder}/toy"
        )
    return Collection(sorted(groups, key=_rank), notes)


def _experiment_of(folder: Path) -> str | None:
    name = read_experiment_name(folder) or folder.resolve().name
    return name if name in EXPERIMENTS else None


def _identity(record: RunRecord) -> str:
    """Return what tells the runs of one experiment apart, whatever version made the record."""
    config = {name: record.config.get(name) for name in ("data", "settings", "variant")}
    return json.dumps([record.classifier, record.stream, record.seed, config], sort_keys=True)


def _group(
    experiment: str, encoder: str, kind: str, records: list[RunRecord], notes: list[str]
) -> Group | None:
    try:
        return Group(
            experiment, encoder, kind, records, load_experiment(experiment).make_table(records)
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        notes.append(
            f"{experiment}: {len(records)} records that do not fit are left out "
            f"({type(error).__name__}: {error})."
        )
        return None


def _rank(group: Group) -> tuple[Any, ...]:
    position = list(EXPERIMENTS).index(group.experiment)
    return position, list(KINDS).index(group.kind), group.encoder != "resnet50", group.encoder


def _lines(numbers: Sequence[int]) -> str:
    """
    >>> _lines([3]), _lines([3, 7])
    ('line 3 is damaged and', 'lines 3, 7 are damaged and')
    """
    text = ", ".join(map(str, numbers))
    return f"lines {text} are damaged and" if numbers[1:] else f"line {text} is damaged and"
