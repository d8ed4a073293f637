"""Groups and summaries of records, for tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean
from typing import Any, TypeVar

from dkvb.evaluation.records import Number, RunRecord, mean_and_std

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group records, or anything else, by a key, in the order of appearance."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def get_order(record: RunRecord) -> str:
    """Return the order of a record: "class-incremental" or "iid"."""
    return str(record.config["order"])


def setting(name: str) -> Callable[[RunRecord], Any]:
    """Return a function that reads one setting of a record's classifier."""
    return lambda record: record.config["settings"][name]


def only(
    records: Iterable[RunRecord], *, order: str | None = None, classifier: str | None = None
) -> list[RunRecord]:
    """Return the records of one order, of one classifier, or both."""
    return [
        record
        for record in records
        if order in (None, get_order(record)) and classifier in (None, record.classifier)
    ]


def final_accuracies(records: Sequence[RunRecord]) -> list[float]:
    """Return the final accuracies in percent."""
    finals = (record.metrics["final_accuracy"] for record in records)
    return [100 * value for value in finals if value is not None]


def mean_final_accuracy(records: Sequence[RunRecord]) -> float | None:
    """Return the mean final accuracy in percent, None without records."""
    finals = final_accuracies(records)
    return fmean(finals) if finals else None


def final(records: Sequence[RunRecord]) -> dict[str, Number]:
    """Return mean and standard deviation of the final accuracy in percent."""
    return mean_and_std(final_accuracies(records))


def metric(records: Sequence[RunRecord], name: str, scale: float = 1.0) -> dict[str, Number]:
    """Return mean and standard deviation of a metric."""
    return mean_and_std([record.metrics.get(name) for record in records], scale)


def accuracy_by_alpha(records: Sequence[RunRecord], where: str) -> dict[float, list[float]]:
    """Return accuracies in percent by noise level, for one unit of noise."""
    by: dict[float, list[float]] = {}
    for record in records:
        for point in record.extra.get(where, ()):
            by.setdefault(point["alpha"], []).append(100 * point["accuracy"])
    return by


def get_encoder(records: Sequence[RunRecord]) -> str:
    """Return the encoder of the records' embeddings."""
    return str(records[0].config.get("data", {}).get("encoder", "")) if records else ""
