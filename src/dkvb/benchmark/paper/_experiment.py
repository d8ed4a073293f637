"""What all experiments share: a setup, and the way from cells to records, table and picture.

An experiment is a module with `TITLE`, the configurations `PAPER` and `QUICK` (one frozen
dataclass), and three functions: `jobs(setup)`, the runs it consists of;
`table(records)`, the rows of its table; `draw(records, path, title)`, its picture. The last two
see records only.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from dkvb._support import process_group
from dkvb.benchmark.grid import ClassifierSpec, Comparison, Data, Placed
from dkvb.benchmark.paper import EXPERIMENTS, module_of
from dkvb.benchmark.paper._kinds import KINDS, kind_of, settings_of
from dkvb.benchmark.paper._source import Source, stream_data
from dkvb.benchmark.paper._tables import grouped
from dkvb.benchmark.paper.statements import judge
from dkvb.benchmark.records import Cell, Job, Number, RunRecord, finish, read_records, write_summary
from dkvb.benchmark.runner import versions

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Setup:
    """What one run of an experiment is given."""

    source: Source
    seeds: tuple[int, ...]
    config: Any  # the experiment's own dataclass
    device: str = "cpu"

    def data(self, target: str = "cifar10", keys: str = "cifar100") -> Data:
        return stream_data(self.source, target, keys)

    def stream_jobs(
        self,
        data: Data,
        specs: Sequence[ClassifierSpec],
        orders: Sequence[str] = ("class-incremental",),
        **settings: Any,
    ) -> list[Job]:
        """Classifiers through a stream, with the epochs of the configuration unless said."""
        settings = {
            "epochs": self.config.epochs,
            "evaluate_every": self.config.evaluate_every,
        } | settings
        return Comparison(
            classifiers=tuple(specs),
            seeds=self.seeds,
            orders=tuple(orders),
            device=self.device,
            **settings,
        ).jobs(data)


def measured_job(
    setup: Setup,
    data: Placed,
    shown: str,
    what: Mapping[str, Any],
    measure: Callable[[], Measured],
) -> Job:
    """A job of one cell that is no plain stream: `measure` is called if its record is missing.

    `what` holds all that decides the numbers, besides the data."""
    cell = Cell(shown, {**what, "data": data.names, "contents": data.contents})

    def run_cell(cells: Sequence[Cell], progress: bool) -> Iterator[tuple[Cell, RunRecord]]:
        start = perf_counter()
        found = measure()
        yield cell, _record(cell, found, versions(setup.device), perf_counter() - start)

    return Job([cell], run_cell)


class Measured(NamedTuple):
    """Numbers, and what else there is to draw."""

    metrics: Mapping[str, Number]
    extra: Mapping[str, Any] = {}


def configured(name: str, quick: bool, changes: Mapping[str, str] | None = None) -> Any:
    """The configuration of an experiment, some of its fields changed (given as text)."""
    module = module_of(name)
    config = module.QUICK if quick else module.PAPER
    return replace(config, **{k: _parsed(config, k, text) for k, text in (changes or {}).items()})


def run(
    name: str,
    jobs: Sequence[Job],
    out: Path,
    *,
    changes: Mapping[str, str] | None = None,
    known: Mapping[str, RunRecord] | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], list[RunRecord]]:
    """Run what `out` lacks; write records, summary and picture there; return summary and records.

    The summary has the rows of the table, with the paper's numbers beside ours, and the paper's
    statements that these records can judge.
    """
    path = out / "records.jsonl"
    about = {"changes": dict(changes or {})}
    records = finish(jobs, path, known=known, about=about, progress=progress, say=say)
    return show(name, records, out), records


def redraw(name: str, out: Path, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Summary and picture anew from the records in `out`: of those that belong together, the ones
    worth most. `say` is told what was left out."""
    path = out / "records.jsonl"
    records, damaged = read_records(path) if path.exists() else ([], [])
    if not records:
        raise ValueError(f"--out {out}: expected a folder with records.jsonl; run {name} first")
    check_own(name, out)
    groups = list(grouped(records, settings_of).values())
    shown = min(groups, key=lambda own: list(KINDS).index(kind_of(name, own)))
    left = [f"{len(records) - len(shown)} of other settings"] * (len(groups) > 1)
    left += [f"{len(damaged)} damaged (line {', '.join(map(str, damaged))})"] * bool(damaged)
    if left:
        say(f"{path}: left out {' and '.join(left)}")
    try:
        return show(name, shown, out)
    except (KeyError, IndexError, AttributeError) as error:
        raise ValueError(
            f"--out {out}: expected records of {name}; got those of another experiment or version "
            f"({error!r})"
        ) from error


def check_own(name: str, out: Path) -> None:
    """Raise for a folder that holds another experiment."""
    other = experiment_in(out)
    if other not in (None, name):
        raise ValueError(f"--out {out}: expected a folder of {name}; got one of {other}")


def experiment_in(folder: Path) -> str | None:
    """The experiment that the summary in a folder is about; None without one."""
    try:
        text = (folder / "summary.json").read_text(encoding="utf-8")
        return str(json.loads(text)["experiment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def show(name: str, records: list[RunRecord], out: Path) -> dict[str, Any]:
    """Write summary and picture of records."""
    module, note = module_of(name), KINDS[kind_of(name, records)]
    title = f"{module.TITLE} ({note})" if note else module.TITLE
    summary = {
        "experiment": name,
        "paper": EXPERIMENTS[name],
        "title": title,
        "rows": module.table(records),
        "statements": [vars(v) for v in judge({name: records}) if v.mark != "not measured"],
    }
    if process_group.rank() > 0:
        return summary
    write_summary(out / "summary.json", summary)
    module.draw(records, out / f"{name}.png", title)
    return summary


def _record(cell: Cell, found: Measured, ran_on: Mapping[str, str], seconds: float) -> RunRecord:
    return RunRecord(
        classifier=cell.classifier,
        stream=str(cell.what.get("order", "")),
        seed=cell.what.get("seed"),
        classes=[],
        stages=[],
        config=dict(cell.what),
        versions=dict(ran_on),
        curve=[],
        accuracy_matrix=[],
        metrics={k: None if v is None else round(float(v), 6) for k, v in found.metrics.items()},
        times={"keys": 0.0, "prepare": 0.0, "learn": round(seconds, 3), "predict": 0.0},
        extra=dict(found.extra),
    )


def _parsed(config: Any, name: str, text: str) -> Any:
    """Text as a value of the kind that the field has."""
    known = {field.name: getattr(config, field.name) for field in fields(config)}
    if name not in known:
        raise ValueError(f"--set: expected one of {', '.join(known)}; got {name!r}")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    before = known[name]
    value = float(value) if isinstance(before, float) and isinstance(value, int) else value
    value = tuple(value) if isinstance(before, tuple) and isinstance(value, list) else value
    if before is not None and value is not None and type(value) is not type(before):
        raise ValueError(
            f"--set {name}: expected a value like {before!r}; got {text!r}; "
            "write lists as [1, 2, 3]"
        )
    return value
