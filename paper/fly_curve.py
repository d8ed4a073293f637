"""Records of the FlyModel: final accuracies, and curves within tasks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from dkvb.evaluation.records import RunRecord

WITHIN = "fly, within tasks"


def get_epochs(record: RunRecord) -> int:
    """Return the epochs per task of a record."""
    return int(record.config["settings"]["epochs"])


def split_records(records: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """Return the records of final accuracies, and those of curves within tasks."""
    within = [record for record in records if record.classifier == WITHIN]
    return [record for record in records if record.classifier != WITHIN], within


def curve_within(records: Sequence[RunRecord]) -> dict[tuple[int, int], float]:
    """Return the mean accuracy on the classes seen so far by task and epoch, in percent."""
    by: dict[tuple[int, int], list[float]] = {}
    for record in records:
        for point in record.curve:
            if point.seen_accuracy is not None and point.epoch is not None:
                by.setdefault((point.task, point.epoch), []).append(100 * point.seen_accuracy)
    return {point: fmean(values) for point, values in by.items()}
