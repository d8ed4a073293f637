"""Runs that are recorded once: a killed command continues where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dkvb.evaluation.legacy import restore_parameters
from dkvb.evaluation.records import (
    RecordsFile,
    RunRecord,
    append_record,
    damaged_file,
    move_damaged_lines,
    read_records,
)


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One run of a grid or experiment.

    Parameters
    ----------
    classifier : str
        Name of the classifier in tables.
    parameters : mapping
        Everything that decides the result, and nothing else, as plain types.
    """

    classifier: str
    parameters: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """Digest of the parameters: equal for equal runs.

        >>> RunSpec("a", {"seed": 1, "order": "iid"}).run_id
        '6f36f5f21d8e6683'
        """
        text = json.dumps(restore_parameters(self.parameters), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Job(NamedTuple):
    """Runs that share work.

    `run(specs, progress)` yields a record for each of the given specs, which are those of `specs`
    without a record.
    """

    specs: Sequence[RunSpec]
    run: Callable[[Sequence[RunSpec], bool], Iterator[tuple[RunSpec, RunRecord]]]


def run_missing(
    jobs: Sequence[Job],
    path: Path,
    *,
    reusable: Mapping[str, RunRecord] | None = None,
    extra_config: Mapping[str, Any] | None = None,
    progress: bool = False,
    log: Callable[[str], None] = lambda text: None,
) -> list[RunRecord]:
    """Run every spec without a record and return all records in the order of the jobs.

    Each new record is on disk before the next run begins: a killed process loses the run in
    progress and nothing else. Damaged lines are moved to a file beside the records.

    Parameters
    ----------
    jobs : sequence of Job
        The runs.
    path : Path
        Records file. It is read first and new records are appended.
    reusable : mapping from run id to RunRecord, optional
        Records of other files. They are copied instead of run again.
    extra_config : mapping, optional
        Added to the configuration of each new record.
    progress : bool, default=False
        Whether to show a progress bar.
    log : callable, optional
        Called with one line on the content of an existing file. With several processes, only the
        first calls it.
    """
    from tqdm import tqdm

    specs = [spec for job in jobs for spec in job.specs]
    found = read_records(path) if path.exists() else RecordsFile([], [])
    done = {record.run_id: record for record in found.records}
    if found.records or found.damaged:
        if found.damaged:
            move_damaged_lines(path)
        log(_describe_file(path, specs, done, found))
    reusable = reusable or {}
    for spec in specs:
        if spec.run_id in reusable and spec.run_id not in done:
            done[spec.run_id] = replace(reusable[spec.run_id], classifier=spec.classifier)
            append_record(path, done[spec.run_id])
    n_missing = len({spec.run_id for spec in specs} - done.keys())
    shown = progress and n_missing > 0
    with tqdm(total=n_missing, unit="run", disable=not shown, smoothing=0) as bar:
        for job in jobs:
            missing = [spec for spec in job.specs if spec.run_id not in done]
            if not missing:
                continue
            bar.set_description(missing[0].classifier)
            for spec, record in job.run(missing, progress):
                config = {**record.config, **(extra_config or {})}
                done[spec.run_id] = replace(record, run_id=spec.run_id, config=config)
                append_record(path, done[spec.run_id])
                bar.update()
    return [replace(done[spec.run_id], classifier=spec.classifier) for spec in specs]


def _describe_file(
    path: Path, specs: Sequence[RunSpec], done: Mapping[str, RunRecord], found: RecordsFile
) -> str:
    n_finished = sum(spec.run_id in done for spec in specs)
    counts = [f"{n_finished} of {len(specs)} runs finished"]
    n_other = len(done.keys() - {spec.run_id for spec in specs})
    if n_other:
        counts.append(f"{n_other} of other settings")
    moved = ""
    if found.damaged:
        lines = ", ".join(map(str, found.damaged))
        counts.append(f"{len(found.damaged)} damaged (line {lines})")
        moved = f"; damaged lines are now in {damaged_file(path).name}"
    return f"{path}: {', '.join(counts)}; {len(specs) - n_finished} to run{moved}"
