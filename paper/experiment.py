"""The parts that all experiments share: setup, jobs, table and figure."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from dkvb.evaluation.grid import ClassifierSpec, Data, DeviceData, Grid
from dkvb.evaluation.jobs import Job, RunSpec, run_missing
from dkvb.evaluation.records import Number, RunRecord, read_records, write_summary
from dkvb.evaluation.runner import collect_versions
from paper.claims import judge_records
from paper.encoders import KeyData, default_keys, key_epochs
from paper.experiments import EXPERIMENTS, load_experiment
from paper.kinds import KINDS, classify_records, get_variant
from paper.source import Source, load_stream_data
from paper.tables import group_by

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Setup:
    """Data, seeds, settings and device of a run of an experiment."""

    source: Source
    seeds: tuple[int, ...]
    config: Any  # the experiment's own dataclass
    device: str = "cpu"
    keys: str | None = None  # data set to fit keys to; default: the paper's

    def load_data(self, target: str = "cifar10", keys: str | None = None) -> Data:
        """Load the data of a stream: a data set to learn, and one to fit keys to.

        `keys` names a data set that the experiment itself prescribes.
        """
        keys = keys or self.keys or default_keys(self.source.encoder, target)
        return load_stream_data(self.source, target, keys)

    def make_stream_jobs(
        self,
        data: Data,
        specs: Sequence[ClassifierSpec],
        orders: Sequence[str] = ("class-incremental",),
        **settings: Any,
    ) -> list[Job]:
        """Return jobs that train classifiers on a stream.

        The epochs are those of the configuration, unless `settings` of the grid has others.
        """
        settings = {
            "epochs": self.config.epochs,
            "evaluate_every": self.config.evaluate_every,
        } | settings
        return Grid(
            classifiers=tuple(specs),
            seeds=self.seeds,
            orders=tuple(orders),
            device=self.device,
            **settings,
        ).make_jobs(data)


class Measurement(NamedTuple):
    """Numbers, and further data for the figure."""

    metrics: Mapping[str, Number]
    extra: Mapping[str, Any] = {}


def make_measurement_job(
    setup: Setup,
    data: DeviceData,
    title: str,
    parameters: Mapping[str, Any],
    measure: Callable[[], Measurement],
) -> Job:
    """Return a job of one run that is not a plain stream.

    `parameters` holds everything that decides the numbers, besides the data. `measure` is called if
    the record is missing.
    """
    spec = RunSpec(title, {**parameters, "data": data.names, "contents": data.contents})

    def run(specs: Sequence[RunSpec], progress: bool) -> Iterator[tuple[RunSpec, RunRecord]]:
        start = perf_counter()
        measurement = measure()
        seconds = perf_counter() - start
        yield spec, _record(spec, measurement, collect_versions(setup.device), seconds)

    return Job([spec], run)


def make_config(name: str, quick: bool, changes: Mapping[str, str] | None = None) -> Any:
    """Return the configuration of an experiment, with some fields changed (given as text)."""
    module = load_experiment(name)
    config = module.QUICK if quick else module.PAPER
    return replace(config, **{k: _parse(config, k, text) for k, text in (changes or {}).items()})


def make_setup(
    name: str,
    source: Source,
    seeds: tuple[int, ...],
    *,
    quick: bool = False,
    changes: Mapping[str, str] | None = None,
    keys: KeyData | None = None,
    device: str = "cpu",
) -> tuple[Setup, dict[str, str]]:
    """Return the setup of an experiment, and what is changed from the paper's for the records.

    Keys are fitted to the paper's data set for its number of epochs, unless `keys` has others.
    """
    changes = dict(changes or {})
    config = make_config(name, quick, changes)
    module = load_experiment(name)
    target = getattr(module, "TARGET", "cifar10")
    usual = default_keys(source.encoder, target)
    if keys is not None and not getattr(module, "TAKES_KEYS", True):
        raise ValueError(f"--keys: expected none for {name}, which chooses its own; leave it out")
    if hasattr(config, "key_epochs") and "key_epochs" not in changes:
        epochs = keys.epochs if keys else min(config.key_epochs, key_epochs(usual))
        config = replace(config, key_epochs=epochs)
    if keys is not None and keys != (usual, key_epochs(usual)):
        changes["keys"] = f"{keys.dataset}:{keys.epochs}"
    return Setup(source, seeds, config, device, keys.dataset if keys else None), changes


def select_jobs(jobs: Sequence[Job], names: Sequence[str] | None) -> list[Job]:
    """Return the jobs with the runs of classifiers whose names begin with one of `names`."""
    if not names:
        return list(jobs)
    chosen = [
        Job([spec for spec in job.specs if spec.classifier.startswith(tuple(names))], job.run)
        for job in jobs
    ]
    chosen = [job for job in chosen if job.specs]
    if not chosen:
        known = dict.fromkeys(spec.classifier for job in jobs for spec in job.specs)
        raise ValueError(f"--only: expected a beginning of {', '.join(known)}; got {list(names)}")
    return chosen


def run_experiment(
    name: str,
    jobs: Sequence[Job],
    out: Path,
    *,
    changes: Mapping[str, str] | None = None,
    reusable: Mapping[str, RunRecord] | None = None,
    progress: bool = False,
    plot: bool = True,
    log: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], list[RunRecord]]:
    """Run what `out` has no record of, write summary and figure, and return summary and records.

    The summary has the rows of the table, with the paper's numbers beside ours, and the claims that
    these records decide.

    Parameters
    ----------
    name : str
        Name of the experiment.
    jobs : sequence of Job
        Its runs.
    out : Path
        Folder of `records.jsonl`, `summary.json` and the figure.
    changes : mapping, optional
        Fields of the configuration that were changed, for the records.
    plot : bool, default=True
        Whether to draw the figure, which needs matplotlib.
    reusable, progress, log
        As in `run_missing`.
    """
    records = run_missing(
        jobs,
        out / "records.jsonl",
        reusable=reusable,
        extra_config={"changes": dict(changes or {})},
        progress=progress,
        log=log,
    )
    return write_results(name, records, out, plot=plot), records


def plot_only(
    name: str, out: Path, log: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Write summary and figure from the records in `out`.

    If the records are of several configurations, those closest to the paper's are used. `log` is
    called with a line on records that were left out.
    """
    path = out / "records.jsonl"
    records, damaged = read_records(path) if path.exists() else ([], [])
    if not records:
        raise ValueError(f"--out {out}: expected a folder with records.jsonl; run {name} first")
    check_folder(name, out)
    groups = list(group_by(records, get_variant).values())
    chosen = min(groups, key=lambda group: list(KINDS).index(classify_records(name, group)))
    left = [f"{len(records) - len(chosen)} of other settings"] * (len(groups) > 1)
    left += [f"{len(damaged)} damaged (line {', '.join(map(str, damaged))})"] * bool(damaged)
    if left:
        log(f"{path}: left out {' and '.join(left)}")
    try:
        return write_results(name, chosen, out)
    except (KeyError, IndexError, AttributeError) as error:
        raise ValueError(
            f"--out {out}: expected records of {name}; got those of another experiment or version "
            f"({error!r})"
        ) from error


def check_folder(name: str, out: Path) -> None:
    """Raise ValueError if a folder has the results of another experiment."""
    other = read_experiment_name(out)
    if other not in (None, name):
        raise ValueError(f"--out {out}: expected a folder of {name}; got one of {other}")


def read_experiment_name(folder: Path) -> str | None:
    """Return the experiment of the summary in a folder; None without a summary."""
    try:
        text = (folder / "summary.json").read_text(encoding="utf-8")
        return str(json.loads(text)["experiment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_results(
    name: str, records: list[RunRecord], out: Path, *, plot: bool = True
) -> dict[str, Any]:
    """Write summary and figure of records, and return the summary."""
    module, kind = load_experiment(name), classify_records(name, records)
    title = f"{module.TITLE} ({KINDS[kind]})" if KINDS[kind] else module.TITLE
    summary = {
        "experiment": name,
        "paper": EXPERIMENTS[name],
        "title": title,
        "kind": kind,
        "rows": module.make_table(records),
        "claims": [
            {"claim": claim.name, "quote": claim.quote, **finding._asdict()}
            for claim, finding in judge_records({name: records})
        ],
    }
    write_summary(out / "summary.json", summary)
    if plot:
        module.plot(records, out / f"{name}.png", title)
    return summary


def _record(
    spec: RunSpec, measurement: Measurement, versions: Mapping[str, str], seconds: float
) -> RunRecord:
    metrics = measurement.metrics.items()
    return RunRecord(
        classifier=spec.classifier,
        stream=str(spec.parameters.get("order", "")),
        seed=spec.parameters.get("seed"),
        classes=[],
        tasks=[],
        config=dict(spec.parameters),
        versions=dict(versions),
        curve=[],
        accuracy_matrix=[],
        metrics={k: None if v is None else round(float(v), 6) for k, v in metrics},
        times={"keys": 0.0, "prepare": 0.0, "learn": round(seconds, 3), "predict": 0.0},
        extra=dict(measurement.extra),
    )


def _parse(config: Any, name: str, text: str) -> Any:
    """Return text as a value of the field's type."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    if name not in values:
        raise ValueError(f"--set: expected one of {', '.join(values)}; got {name!r}")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    before = values[name]
    value = float(value) if isinstance(before, float) and isinstance(value, int) else value
    value = tuple(value) if isinstance(before, tuple) and isinstance(value, list) else value
    if before is not None and value is not None and type(value) is not type(before):
        raise ValueError(
            f"--set {name}: expected a value like {before!r}; got {text!r}; "
            "write lists as [1, 2, 3]"
        )
    return value
