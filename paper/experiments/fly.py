"""Appendix D.2 of the paper (Figure 7): the FlyModel in one pass and over many epochs.

    python -m paper run fly --data DIR --seeds 1,2,3,4,5 --out OUT

One epoch learns well; more epochs saturate its weights, and classes become alike. The paper
reports that the FlyModel learns new classes at the beginning of a task, drops within the task, and
has a very low accuracy at the end of 2,000 epochs per task. Its curve within the tasks is measured
at epochs that grow geometrically, beside the final accuracy for other numbers of epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dkvb.evaluation import streams
from dkvb.evaluation.grid import ClassifierSpec, DeviceData, make_from_spec
from dkvb.evaluation.jobs import Job, RunSpec
from dkvb.evaluation.plots import Series, add_series, make_axes, save_figure
from dkvb.evaluation.records import RunRecord, mean_and_std
from dkvb.evaluation.runner import Clock, RunLog
from paper import models
from paper.experiment import Setup
from paper.fly_curve import WITHIN, curve_within, get_epochs, split_records
from paper.tables import final, group_by

TITLE = "FlyModel over epochs (appendix D.2, Figure 7)"


@dataclass(frozen=True)
class Config(models.Schedule):
    """Numbers of epochs per task; other parameters are the defaults, which are the paper's."""

    fly_epochs: tuple[int, ...] = (1, 10, 100, 2000)
    evaluate_at: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)  # in a task


PAPER = Config()
# With ten times fewer samples it saturates ten times later.
QUICK = Config(
    **models.SMALL,
    fly_epochs=(1, 100, 2000, 20_000),
    evaluate_at=(1, 10, 100, 1000, 10_000, 20_000),
)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the FlyModel with each number of epochs, and its curve within tasks."""
    specs = [
        ClassifierSpec(f"fly:epochs={epochs}", "fly", {"epochs": epochs})
        for epochs in setup.config.fly_epochs
    ]
    data = setup.load_data()
    on_device = DeviceData(data, setup.device)
    within = [
        RunSpec(
            WITHIN,
            {
                "name": "fly",
                "settings": {"evaluate_at": list(setup.config.evaluate_at)},
                "order": "class-incremental",
                "seed": seed,
                "classes_per_task": 2,
                "data": on_device.names,
                "contents": on_device.contents,
            },
        )
        for seed in setup.seeds
    ]
    jobs = [Job([spec], partial(_run_within, setup, on_device)) for spec in within]
    return jobs + setup.make_stream_jobs(data, specs)


def _run_within(
    setup: Setup, data: DeviceData, specs: Sequence[RunSpec], progress: bool
) -> Iterator[tuple[RunSpec, RunRecord]]:
    (x, y), (x_test, y_test) = data.train, data.test
    classes = np.unique(np.concatenate([y, y_test]))
    for spec in specs:
        seed, clock = spec.parameters["seed"], Clock()
        stream = streams.class_incremental(y, 2, seed)
        log = RunLog(stream, y_test, classes)
        fly = make_from_spec(ClassifierSpec("fly", "fly", {}), seed=seed, device=setup.device)
        for number, task in enumerate(stream):
            done = 0
            for epoch in setup.config.evaluate_at:
                # By contract k calls of one epoch equal one call of k epochs.
                fly.set_params(epochs=epoch - done)
                with clock.measure("learn"):
                    fly.partial_fit(x[task.indices], y[task.indices], classes=classes)
                with clock.measure("predict"):
                    predicted = fly.predict(x_test)
                log.add(number, epoch, predicted, test_loss=None, train_loss=None)
                done = epoch
        config = {name: spec.parameters[name] for name in ("order", "settings", "data")}
        yield (
            spec,
            log.record(
                spec.classifier,
                seed=seed,
                params=fly.get_params(),
                config=config,
                top5=None,
                times=clock.seconds,
            ),
        )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy for each number of epochs, and the curve of each task."""
    finals, within = split_records(records)
    rows: dict[str, dict[str, Any]] = {
        f"{epochs} epochs": {"final accuracy": final(group)}
        for epochs, group in sorted(group_by(finals, get_epochs).items())
    }
    by: dict[tuple[int, str], list[float]] = {}
    for record in within:
        for task in range(len(record.tasks)):
            values = [100 * (p.seen_accuracy or 0) for p in record.curve if p.task == task]
            named = {"first epoch": values[0], "highest": max(values), "last epoch": values[-1]}
            for name, value in named.items():
                by.setdefault((task, name), []).append(value)
    for (task, name), values in by.items():
        rows.setdefault(f"within task {task + 1}, classes seen so far", {})[name] = mean_and_std(
            values
        )
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy within the tasks, and final accuracy over epochs."""
    finals, within = split_records(records)
    figure, axes = make_axes(1 + bool(within), width=6.0 * (1 + bool(within)))
    if within:
        points = sorted(curve_within(within).items())
        per_task = len({epoch for (_, epoch), _ in points})
        # Epochs are geometric: equal steps on the axis, a line at the end of each task.
        position = {place: number + 1 for number, (place, _) in enumerate(points)}
        by: dict[float, list[float]] = {}
        for record in within:
            for point in record.curve:
                place = (point.task, point.epoch or 0)
                by.setdefault(position[place] / per_task, []).append(
                    100 * (point.seen_accuracy or 0)
                )
        add_series(axes[0], [Series.from_values("classes seen so far", by)])
        axes[0].set(
            title="within tasks (epochs on a geometric scale)",
            xlabel="tasks learned",
            ylabel="accuracy (%)",
            ylim=(0, 101),
        )
        for task in range(1, len({task for (task, _), _ in points})):
            axes[0].axvline(task, color="0.8", linewidth=0.8, zorder=0)
    if finals:
        ends: dict[float, list[float]] = {}
        for record in finals:
            value = record.metrics["final_accuracy"]
            if value is not None:
                ends.setdefault(get_epochs(record), []).append(100 * value)
        add_series(axes[-1], [Series.from_values("all classes, at the end", ends)], log=True)
        axes[-1].set(
            title="after the last task",
            xlabel="epochs per task",
            ylabel="final accuracy (%)",
            ylim=(0, 101),
        )
    figure.suptitle(title)
    return save_figure(figure, path)
