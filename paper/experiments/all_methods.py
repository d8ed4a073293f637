"""Beyond the paper: every classifier on the same embeddings.

    python -m paper run all-methods --data DIR --seeds 1,2,3 --out OUT

CIFAR-10 in tasks of two classes, CIFAR-100 in tasks of ten, keys from the other data set. The table
has final and average incremental accuracy, forgetting, training time, and the size of the model.
`ewc` is told where tasks end; `neighbours` stores all data. Gradient-trained baselines train for
`baseline_epochs` per task, with a proportionally larger learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ClassifierSpec
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_bars
from dkvb.evaluation.records import RunRecord, mean_and_std
from paper import models
from paper.experiment import Setup
from paper.tables import final, group_by, mean_final_accuracy, metric

TAKES_KEYS = False
TITLE = "Every classifier on the same embeddings"


@dataclass(frozen=True)
class Config(models.Schedule):
    """Data sets, and the schedule of gradient-trained classifiers."""

    tasks: tuple[tuple[str, str, int], ...] = (
        ("cifar10", "cifar100", 2),  # data, keys, classes per task
        ("cifar100", "cifar10", 10),
    )
    epochs: int = 500
    baseline_epochs: int = 20
    ranpac_features: int = 10_240
    sdmlp_neurons: int = 1000


PAPER = Config()
QUICK = Config(
    **models.SMALL | {"baseline_rate": 0.005},
    ranpac_features=1000,
    sdmlp_neurons=200,
    baseline_epochs=10,
    tasks=(("cifar10", "cifar100", 2), ("cifar100", "cifar10", 20)),
)


def specs(config: Config) -> list[ClassifierSpec]:
    """Return all classifiers: kernel, the bottleneck, and baselines."""
    # Learning rate × steps is that of the paper's 2,000 epochs.
    rate = config.baseline_rate * 2000 / config.baseline_epochs
    trained = {"epochs": config.baseline_epochs}
    descent = trained | {"learning_rate": rate}
    return [
        ClassifierSpec("kernel", "kernel", {}),
        models.bottleneck(config),
        ClassifierSpec("ranpac", "ranpac", {"n_features": config.ranpac_features}),
        *(ClassifierSpec(name, name, {}) for name in ("slda", "prototypes", "neighbours")),
        ClassifierSpec("fly", "fly", {"epochs": 1}),  # more epochs collapse, see `fly`
        ClassifierSpec("linear", "linear", descent),
        ClassifierSpec("mlp", "mlp", descent),
        ClassifierSpec("ewc", "ewc", descent),
        ClassifierSpec("sdmlp", "sdmlp", trained | {"n_neurons": config.sdmlp_neurons}),
    ]


def make_jobs(setup: Setup) -> list[Job]:
    """Return every classifier on every data set."""
    return [
        job
        for target, keys, size in setup.config.tasks
        for job in setup.make_stream_jobs(
            setup.load_data(target, keys=keys),
            specs(setup.config),
            classes_per_task=size,
            memory=True,
        )
    ]


def _data(record: RunRecord) -> str:
    return str(record.config["data"]["train"])


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return one row per classifier and data set."""
    return {
        f"{name}, {data}": {
            "final accuracy": final(group),
            "average incremental": metric(group, "average_incremental_accuracy", 100),
            "forgetting": metric(group, "forgetting", 100),
            "training (s)": mean_and_std([r.times["learn"] for r in group]),
            "memory (MB)": metric(group, "memory_bytes", 1e-6),
        }
        for (data, name), group in group_by(records, lambda r: (_data(r), r.classifier)).items()
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracies, one bar per data set, the most accurate classifier first."""
    by_name = group_by(records, lambda r: r.classifier)
    names = sorted(by_name, key=lambda name: -(mean_final_accuracy(by_name[name]) or 0))
    bars = {
        name: {data: final(same) for data, same in group_by(by_name[name], _data).items()}
        for name in names
    }
    return plot_bars(bars, path, title, "final accuracy (%)")
