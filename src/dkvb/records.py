"""Records of runs: one JSON line each, appended, read back and summarised."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

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
    accuracy_matrix: list[list[Number]]  # [after stage i][on the classes of stage j]
    metrics: dict[str, Number]
    times: dict[str, float]  # seconds

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """The record back from its line; ValueError if the line is cut or is not a record."""
        try:
            content = json.loads(line)
            named = {field.name: content[field.name] for field in fields(cls)}
            return cls(**named | {"curve": [Evaluation(**point) for point in content["curve"]]})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line: expected a whole run record; got {line[:40]!r}...") from error


class RecordsFile(NamedTuple):
    """What a records file holds: whole records, and the numbers (from 1) of damaged lines."""

    records: list[RunRecord]
    damaged: list[int]


def append_record(path: Path, record: RunRecord) -> None:
    """Add one line at the end of the file and wait until it is on disk."""
    with Path(path).open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            # A run killed while writing leaves a cut line: start a new one, keep both readable.
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(record.to_json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> RecordsFile:
    """Read every whole record, and say which lines are cut or damaged."""
    found = RecordsFile([], [])
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                found.records.append(RunRecord.from_json(line.decode()))
            except ValueError:
                found.damaged.append(number)
    return found


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
    summary = {name: _spread([r.metrics.get(name) for r in records], 100.0) for name in FRACTIONS}
    summary["test_loss"] = _spread([r.metrics.get("test_loss") for r in records])
    for part in ("learn", "predict"):
        summary[f"{part}_seconds"] = _spread([r.times[part] for r in records])
    return summary


def _spread(values: Sequence[Number], scale: float = 1.0) -> dict[str, Number]:
    known = [scale * value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None}
    return {"mean": round(fmean(known), 6), "std": round(stdev(known), 6) if known[1:] else 0.0}
