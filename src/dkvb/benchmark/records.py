"""Records of runs: one JSON line each, appended, read back, continued and summarised."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from dkvb._support import process_group
from dkvb._support.files import atomic

Number = float | None
Summary = dict[str, dict[str, dict[str, Number]]]

FRACTIONS = (
    "final_accuracy",
    "average_incremental_accuracy",
    "forgetting",
    "backward_transfer",
    "forward_transfer",
    "top5_accuracy",
)


@dataclass(frozen=True)
class Evaluation:
    """The whole test set seen once: after `stage`, `epoch` epochs into it (None: no epochs)."""

    stage: int
    epoch: int | None
    accuracy: Number  # mean of the per-class accuracies
    per_class: list[Number]
    test_loss: Number
    train_loss: Number  # on rows of the stage being learned, at most as many as test rows


@dataclass(frozen=True)
class RunRecord:
    """One classifier on one stream with one seed; plain types, the same after a trip as JSON."""

    classifier: str
    stream: str
    seed: int | None
    classes: list[Any]  # the labels, sorted: the columns of per_class
    stages: list[list[Any]]  # the labels of each stage
    config: dict[str, Any]
    versions: dict[str, str]
    curve: list[Evaluation]
    accuracy_matrix: list[list[Number]]  # [after stage i, if tested][on the classes of stage j]
    metrics: dict[str, Number]
    times: dict[str, float]  # seconds
    cell: str = ""  # identity of the cell that was run
    extra: dict[str, Any] = field(default_factory=dict)  # what an experiment measured besides

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """The record back from its line; ValueError if the line is cut or is not a record."""
        try:
            content = json.loads(line)
            named = {f.name: content[f.name] for f in fields(cls) if f.name in content or _must(f)}
            return cls(**named | {"curve": [Evaluation(**point) for point in content["curve"]]})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line: expected a whole run record; got {line[:40]!r}...") from error


def _must(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


class RecordsFile(NamedTuple):
    """What a records file holds: whole records, and the numbers (from 1) of damaged lines."""

    records: list[RunRecord]
    damaged: list[int]


def append_record(path: Path, record: RunRecord) -> None:
    """Add one line at the end of the file and wait until it is on disk; of several processes, the
    first does."""
    if process_group.rank() == 0:
        _append_lines(Path(path), [record.to_json().encode()])


def read_records(path: Path) -> RecordsFile:
    """Read every whole record, and say which lines are cut or damaged."""
    lines = list(_lines_of(Path(path)))
    return RecordsFile(
        records=[line.record for line in lines if line.record is not None],
        damaged=[line.number for line in lines if line.record is None],
    )


class _Line(NamedTuple):
    number: int  # from 1
    content: bytes
    record: RunRecord | None  # None: damaged


def _lines_of(path: Path) -> Iterator[_Line]:
    """The lines that are not empty."""
    for number, content in enumerate(path.read_bytes().split(b"\n"), start=1):
        if content.strip():
            try:
                yield _Line(number, content, RunRecord.from_json(content.decode()))
            except ValueError:
                yield _Line(number, content, None)


def _append_lines(path: Path, lines: Sequence[bytes]) -> None:
    with path.open("ab+", buffering=0) as file:
        content = b"".join(line + b"\n" for line in lines)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            # A run killed while writing leaves a cut line: start a new one, keep both readable.
            if file.read(1) != b"\n":
                content = b"\n" + content
        atomic.write_all(file.fileno(), content)
        atomic.sync(file.fileno())


def _damaged_file(path: Path) -> Path:
    """Where the damaged lines of a records file are kept."""
    return path.with_name(f"{path.name}.damaged")


def _move_damaged_lines(path: Path) -> None:
    """Damaged lines, byte for byte, to the end of a file beside the records.

    They are on disk there before the records are replaced without them: a kill in between leaves
    them in both files, and they are moved again.
    """
    lines = list(_lines_of(path))
    kept = _damaged_file(path)
    _append_lines(kept, [line.content for line in lines if line.record is None])
    atomic.sync_folder(kept.resolve().parent)
    whole = [line.content + b"\n" for line in lines if line.record is not None]
    atomic.replace_file(path, [b"".join(whole)])


@dataclass(frozen=True, eq=False)
class Cell:
    """One run to be done. `what` holds all that decides its numbers, and nothing else."""

    classifier: str  # as tables show it
    what: Mapping[str, Any]  # plain types

    @property
    def identity(self) -> str:
        """A digest of `what`: the same run, the same identity.

        >>> Cell("a", {"seed": 1, "order": "iid"}).identity
        '6f36f5f21d8e6683'
        """
        text = json.dumps(self.what, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Job(NamedTuple):
    """Cells that share work. `run` takes those that are missing, and whether to show progress."""

    cells: Sequence[Cell]
    run: Callable[[Sequence[Cell], bool], Iterator[tuple[Cell, RunRecord]]]


def finish(
    jobs: Sequence[Job],
    path: Path,
    *,
    known: Mapping[str, RunRecord] | None = None,
    about: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[RunRecord]:
    """A record for every cell, in the order of the jobs: from the file at `path`, where it has one,
    else from `known` (identity → record, of other files), else by running it. The configuration of
    what is run says `about`, too.

    Each new record is on disk before the next run begins, so that a killed run loses the cell in
    flight and nothing else. Damaged lines are moved to a file beside the records. `say` is told
    what the file held; of several processes, in the first.
    """
    from tqdm import tqdm

    wanted = [cell for job in jobs for cell in job.cells]
    found = read_records(path) if path.exists() else RecordsFile([], [])
    done = {record.cell: record for record in found.records}
    # Nobody changes the file, and nobody runs, before all have read it.
    process_group.check_same_on_all_ranks(sorted(map(str, done)), str(path))
    if process_group.rank() == 0 and (found.records or found.damaged):
        if found.damaged:
            _move_damaged_lines(path)
        say(_what_was_found(path, wanted, done, found))
    for cell in wanted:
        if cell.identity in (known or {}) and cell.identity not in done:
            done[cell.identity] = replace((known or {})[cell.identity], classifier=cell.classifier)
            append_record(path, done[cell.identity])
    missing = len({cell.identity for cell in wanted} - done.keys())
    with tqdm(total=missing, unit="run", disable=not progress, smoothing=0) as bar:
        for job in jobs:
            left = [cell for cell in job.cells if cell.identity not in done]
            if not left:
                continue
            bar.set_description(left[0].classifier)
            for cell, record in job.run(left, progress):
                config = {**record.config, **(about or {})}
                done[cell.identity] = replace(record, cell=cell.identity, config=config)
                append_record(path, done[cell.identity])
                bar.update()
    return [replace(done[cell.identity], classifier=cell.classifier) for cell in wanted]


def _what_was_found(
    path: Path, wanted: Sequence[Cell], done: Mapping[str, RunRecord], found: RecordsFile
) -> str:
    finished = sum(cell.identity in done for cell in wanted)
    parts = [f"{finished} of {len(wanted)} runs finished"]
    others = len(done.keys() - {cell.identity for cell in wanted})
    if others:
        parts.append(f"{others} of other settings")
    if found.damaged:
        lines = ", ".join(map(str, found.damaged))
        parts.append(f"{len(found.damaged)} damaged (line {lines})")
    moved = f"; damaged lines are now in {_damaged_file(path).name}" if found.damaged else ""
    return f"{path}: {', '.join(parts)}; {len(wanted) - finished} to run{moved}"


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Replace the file by a summary as JSON, as a whole or not at all."""
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    atomic.replace_file(Path(path), [text.encode()])


def summarise(records: Iterable[RunRecord]) -> Summary:
    """Mean and sample standard deviation over seeds, a classifier each; accuracies in percent.

    Records of several streams get a key each, with the stream's name: `linear (iid)`.
    """
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.classifier, record.stream), []).append(record)
    several = len({stream for _, stream in groups}) > 1
    return {
        f"{classifier} ({stream})" if several else classifier: _over_seeds(group)
        for (classifier, stream), group in groups.items()
    }


def _over_seeds(records: Sequence[RunRecord]) -> dict[str, dict[str, Number]]:
    summary = {name: spread([r.metrics.get(name) for r in records], 100.0) for name in FRACTIONS}
    summary["test_loss"] = spread([r.metrics.get("test_loss") for r in records])
    for part in ("learn", "predict"):
        summary[f"{part}_seconds"] = spread([r.times[part] for r in records])
    return summary


def spread(values: Sequence[Number], scale: float = 1.0) -> dict[str, Number]:
    """Mean and sample standard deviation of what is known; one value has no deviation.

    >>> spread([0.5, None, 0.7], scale=100)
    {'mean': 60.0, 'std': 14.142136}
    """
    known = [scale * value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None}
    return {"mean": round(fmean(known), 6), "std": round(stdev(known), 6) if known[1:] else None}
