"""Records of runs: one JSON line per run, appended, read back and summarised."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from dkvb._support.files import atomic
from dkvb.evaluation.legacy import rename_record

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
    """One evaluation on the test set, after `epoch` epochs of `task` (None: it has no epochs)."""

    task: int
    epoch: int | None
    accuracy: Number  # mean of the per-class accuracies over all classes
    per_class: list[Number]
    test_loss: Number
    train_loss: Number  # on samples of the present task, at most as many as the test set has
    seen_accuracy: Number = None  # mean of the per-class accuracies over the classes seen so far


@dataclass(frozen=True)
class RunRecord:
    """One classifier on one stream with one seed, as plain types that JSON preserves."""

    classifier: str
    stream: str
    seed: int | None
    classes: list[Any]  # the labels, sorted, in the order of per_class
    tasks: list[list[Any]]  # the labels of each task
    config: dict[str, Any]
    versions: dict[str, str]
    curve: list[Evaluation]
    accuracy_matrix: list[list[Number]]  # [after task i, if evaluated][on the classes of task j]
    metrics: dict[str, Number]
    times: dict[str, float]  # seconds
    run_id: str = ""  # of the RunSpec
    extra: dict[str, Any] = field(default_factory=dict)  # further measurements of an experiment

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """Read a record of any version; ValueError if the line is cut or is not a record."""
        try:
            content = rename_record(json.loads(line))
            named = {
                f.name: content[f.name] for f in fields(cls) if f.name in content or _is_required(f)
            }
            curve = [
                Evaluation(**{"seen_accuracy": _seen_accuracy(content, point), **point})
                for point in content["curve"]
            ]
            _check_kinds(named)
            for point in curve:
                _check_numbers(point.accuracy, point.test_loss, point.train_loss, *point.per_class)
            return cls(**named | {"curve": curve})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"line: expected a whole run record; got {line[:40]!r}...") from error


_LARGEST = 1e15  # of a metric or a time, far above any that was measured
_KINDS: dict[str, type] = {
    **dict.fromkeys(("classifier", "stream", "run_id"), str),
    **dict.fromkeys(("classes", "tasks", "accuracy_matrix"), list),
    **dict.fromkeys(("config", "versions", "metrics", "times", "extra"), dict),
}


def _check_kinds(named: Mapping[str, Any]) -> None:
    """Raise for fields that are not of the types that whoever reads records relies on."""
    if not all(type(named[name]) is kind for name, kind in _KINDS.items() if name in named):
        raise TypeError("a field has another type")
    _check_numbers(*named["metrics"].values(), *named["times"].values())


def _check_numbers(*numbers: Any) -> None:
    """Raise for what is neither None nor a number of which a mean and a deviation can be taken."""
    for one in numbers:
        if one is not None and not (type(one) in (int, float) and abs(one) <= _LARGEST):
            raise TypeError(f"expected a finite number; got {one!r:.20}")


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _seen_accuracy(record: Mapping[str, Any], point: Mapping[str, Any]) -> Number:
    """The accuracy on the classes seen so far, which 0.1 did not write."""
    seen = {label for task in record["tasks"][: point["task"] + 1] for label in task}
    per_class = zip(record["classes"], point["per_class"], strict=True)
    known = [value for label, value in per_class if label in seen and value is not None]
    return round(fmean(known), 6) if known else None


class RecordsFile(NamedTuple):
    """The content of a records file: whole records, and the numbers (from 1) of damaged lines."""

    records: list[RunRecord]
    damaged: list[int]


def append_record(path: Path, record: RunRecord) -> None:
    """Append one line and wait until it is on disk."""
    _append_lines(Path(path), [record.to_json().encode()])


def read_records(path: Path) -> RecordsFile:
    """Read all whole records and the numbers of damaged lines."""
    lines = list(_read_lines(Path(path)))
    return RecordsFile(
        records=[line.record for line in lines if line.record is not None],
        damaged=[line.number for line in lines if line.record is None],
    )


class _Line(NamedTuple):
    number: int  # from 1
    content: bytes
    record: RunRecord | None  # None: damaged


def _read_lines(path: Path) -> Iterator[_Line]:
    """Yield the lines that are not empty."""
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
            # A process killed while writing leaves a cut line: start a new one.
            if file.read(1) != b"\n":
                content = b"\n" + content
        atomic.write_all(file.fileno(), content)
        atomic.sync(file.fileno())


def damaged_file(path: Path) -> Path:
    """Return the file that keeps the damaged lines of a records file."""
    return path.with_name(f"{path.name}.damaged")


def move_damaged_lines(path: Path) -> None:
    """Move damaged lines, byte for byte, to the end of a file beside the records.

    They are on disk there before the records are replaced without them: a process killed in
    between leaves them in both files, and the next one moves them again.
    """
    lines = list(_read_lines(path))
    damaged = damaged_file(path)
    _append_lines(damaged, [line.content for line in lines if line.record is None])
    atomic.sync_folder(damaged.resolve().parent)
    whole = [line.content + b"\n" for line in lines if line.record is not None]
    atomic.replace_file(path, [b"".join(whole)])


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Replace the file by a summary as JSON, as a whole or not at all."""
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    atomic.replace_file(Path(path), [text.encode()])


def summarise(records: Iterable[RunRecord]) -> Summary:
    """Return mean and sample standard deviation over seeds per classifier, accuracies in percent.

    If the records have several streams, a key names the stream too: `linear (iid)`.
    """
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.classifier, record.stream), []).append(record)
    several = len({stream for _, stream in groups}) > 1
    return {
        f"{classifier} ({stream})" if several else classifier: _summarise_seeds(group)
        for (classifier, stream), group in groups.items()
    }


def _summarise_seeds(records: Sequence[RunRecord]) -> dict[str, dict[str, Number]]:
    summary = {
        name: mean_and_std([r.metrics.get(name) for r in records], 100.0) for name in FRACTIONS
    }
    summary["test_loss"] = mean_and_std([r.metrics.get("test_loss") for r in records])
    for step in ("learn", "predict"):
        summary[f"{step}_seconds"] = mean_and_std([r.times.get(step) for r in records])
    return summary


def mean_and_std(values: Sequence[Number], scale: float = 1.0) -> dict[str, Number]:
    """Return mean and sample standard deviation, None left out; one value has no deviation.

    >>> mean_and_std([0.5, None, 0.7], scale=100)
    {'mean': 60.0, 'std': 14.142136}
    """
    known = [scale * value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None}
    return {"mean": round(fmean(known), 6), "std": round(stdev(known), 6) if known[1:] else None}
