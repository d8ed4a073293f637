"""Sweeps over one parameter, as one table: Figures 4, 5, 6, 8 and 9 of the paper, and appendix C.

    python -m paper run pairs --data DIR --seeds 1,2,3,4,5

Each line of `SWEEPS` is one experiment: the base model of Figure 3 with one parameter changed. What
the paper reports of it stands in `paper.claims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import Series, plot_accuracy, plot_bars, plot_losses, plot_series
from dkvb.evaluation.records import RunRecord, mean_and_std
from paper import models
from paper.encoders import key_epochs
from paper.experiment import Setup
from paper.tables import final, final_accuracies, get_order, group_by, metric, only

_CI = ("class-incremental",)
_MODELS = {"bottleneck": models.bottleneck, "linear": models.linear, "mlp": models.mlp}


@dataclass(frozen=True)
class Config(models.Schedule):
    """The base model, the values of the parameter, and the orders of the data."""

    values: tuple[Any, ...] = ()
    orders: tuple[str, ...] = ORDERS


@dataclass(frozen=True)
class Sweep:
    """One parameter, its values, and what is measured: an experiment like the modules beside it."""

    name: str  # of the experiment
    figure: str  # of the paper
    label: str  # of the parameter, in tables and figures
    parameter: str  # of the models; or "keys", "classes_per_task", or "order" for none
    values: tuple[Any, ...]
    small: tuple[Any, ...]  # the values of a quick run
    classifiers: tuple[str, ...] = ("bottleneck",)
    orders: tuple[str, ...] = ORDERS
    measured: str = "final accuracy"  # or "stream": the curve along the tasks; or "loss"
    evaluate_every: int | None = None
    small_every: int | None = None

    @property
    def TITLE(self) -> str:
        """Title of table and figure."""
        return f"{self.label[0].upper()}{self.label[1:]} ({self.figure})"

    @property
    def TAKES_KEYS(self) -> bool:
        """False for the sweep over key data, which chooses its own."""
        return self.parameter != "keys"

    @property
    def PAPER(self) -> Config:
        """The paper's settings."""
        return Config(values=self.values, orders=self.orders, evaluate_every=self.evaluate_every)

    @property
    def QUICK(self) -> Config:
        """Small sizes and few epochs."""
        small = models.SMALL | {"evaluate_every": self.small_every}
        return Config(**small, values=self.small, orders=self.orders)

    def make_jobs(self, setup: Setup) -> list[Job]:
        """Return every model with every value, in every order."""
        config = setup.config
        makers = [_MODELS[name] for name in self.classifiers]
        if self.parameter == "keys":
            return self._over_key_data(setup)
        data = setup.load_data()
        if self.parameter == "order":
            return setup.make_stream_jobs(data, [make(config) for make in makers], config.orders)
        if self.parameter == "classes_per_task":
            specs = [make(config) for make in makers]
            return [
                *(
                    job
                    for size in config.values
                    for job in setup.make_stream_jobs(data, specs, classes_per_task=size)
                ),
                *setup.make_stream_jobs(data, specs, ["iid"]),
            ]
        specs = [
            make(config, f"{name}:{self.parameter}={value:g}", **{self.parameter: value})
            for name, make in zip(self.classifiers, makers, strict=True)
            for value in config.values
        ]
        return setup.make_stream_jobs(data, specs, config.orders)

    def _over_key_data(self, setup: Setup) -> list[Job]:
        """Return the base model with keys of each data set whose files are there."""
        config = setup.config
        setup.source.require("cifar10", "cifar100")
        return [
            job
            for name in config.values
            if setup.source.has(name, "train")
            for job in setup.make_stream_jobs(
                setup.load_data("cifar10", keys=name),
                [models.bottleneck(config, key_epochs=min(config.key_epochs, key_epochs(name)))],
                config.orders,
            )
        ]

    def value_of(self, record: RunRecord) -> Any:
        """Return the value of the parameter in a record."""
        if self.parameter == "keys":
            return str(record.config["data"]["keys"])
        if self.parameter == "order":
            return get_order(record)
        if self.parameter == "classes_per_task":
            return (
                f"{len(record.tasks)} tasks of {len(record.tasks[0])}"
                if record.tasks[1:]
                else "iid"
            )
        return record.config["settings"][self.parameter]

    def make_table(self, records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
        """Return one row per value."""
        if self.measured == "loss":
            return {
                f"{name} ({order})": {
                    "train loss": mean_and_std([r.curve[-1].train_loss for r in group]),
                    "test loss": metric(group, "test_loss"),
                }
                for (name, order), group in group_by(
                    records, lambda r: (r.classifier, get_order(r))
                ).items()
            }
        if self.measured == "stream":
            several = len(self.classifiers) > 1
            line = (lambda r: r.classifier) if several else self.value_of
            return {
                str(name): {
                    "final accuracy": final(group),
                    "average incremental": metric(group, "average_incremental_accuracy", 100),
                    "forgetting": metric(group, "forgetting", 100),
                }
                for name, group in group_by(records, line).items()
            }
        return {
            str(value): {order: final(same) for order, same in group_by(group, get_order).items()}
            for value, group in sorted(group_by(records, self.value_of).items())
        }

    def plot(self, records: Sequence[RunRecord], path: Path, title: str) -> Path:
        """Plot final accuracy over the values, or what is measured along the stream."""
        if self.measured == "loss":
            return plot_losses(records, path, title)
        if self.measured == "stream":
            return plot_accuracy(records, path, title)
        if self.parameter == "keys":
            return plot_bars(self.make_table(records), path, title, "final accuracy (%)")
        by_value = sorted(group_by(records, self.value_of).items())
        series = [
            Series.from_values(
                order,
                {value: final_accuracies(only(group, order=order)) for value, group in by_value},
                dashed=order == "iid",
            )
            for order in group_by(records, get_order)
        ]
        log = self.parameter in ("n_pairs", "n_codebooks")  # each value doubles
        return plot_series(series, path, title, self.label, "final accuracy (%)", log=log)


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        # name, figure, label, parameter, values, small values
        Sweep(
            "loss",
            "Figure 4",
            "loss along the stream",
            "order",
            ORDERS,
            ORDERS,
            classifiers=("bottleneck", "linear"),
            measured="loss",
            evaluate_every=200,
            small_every=10,
        ),
        Sweep(
            "key-dim", "Figure 5a", "key dimension", "key_dim", (4, 8, 12, 16, 32), (2, 4, 8, 16)
        ),
        Sweep(
            "pairs",
            "Figure 5b",
            "pairs per codebook",
            "n_pairs",
            (256, 512, 1024, 2048, 4096),
            (16, 64, 256),
        ),
        Sweep(
            "codebooks",
            "Figure 5c",
            "codebooks",
            "n_codebooks",
            (16, 32, 64, 128, 256),
            (4, 16, 64),
        ),
        Sweep(
            "key-data",
            "Figure 5d",
            "data that keys are fitted to",
            "keys",
            ("cifar10", "cifar100", "stl10", "imagenet"),
            ("cifar10", "cifar100"),
        ),
        Sweep(
            "label-smoothing",
            "appendix C",
            "label smoothing",
            "label_smoothing",
            (0.0, 0.05, 0.1, 0.2),
            (0.0, 0.05, 0.1, 0.2),
            orders=_CI,
        ),
        Sweep(
            "granularity",
            "appendix D.1, Figure 6",
            "classes per task",
            "classes_per_task",
            (1, 2, 5),
            (1, 2, 5),
            measured="stream",
        ),
        Sweep(
            "weight-decay",
            "appendix D.3, Figures 8 and 9",
            "weight decay",
            "weight_decay",
            (1e-2, 1e-4, 1e-6),
            (1e-2, 1e-4, 1e-6),
            classifiers=("linear", "mlp"),
            orders=_CI,
            measured="stream",
            evaluate_every=500,
        ),
    )
}
