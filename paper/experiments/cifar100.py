"""Appendix D.4 of the paper (Figure 10): CIFAR-100 in fifty tasks, keys from CIFAR-10.

    python -m paper run cifar100 --data DIR --encoder resnet50 --seeds 1,2,3,4,5 --out OUT

The paper's final accuracies: ResNet50 54.7, CLIP 64; SDMLP 43. 500 epochs per task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS, DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.experiment import Setup
from paper.experiments import cifar10
from paper.sdmlp import make_sdmlp_jobs

TARGET = "cifar100"
TITLE = "CIFAR-100, two classes at a time (appendix D.4, Figure 10)"


@dataclass(frozen=True)
class Config(models.Schedule):
    """The base model with fewer epochs, and the settings of the baseline SDMLP (`_sdmlp`)."""

    epochs: int = 500
    sdmlp_neurons: tuple[int, ...] = (10_000,)
    sdmlp_epochs: int = 2000
    sdmlp_pretraining: int = 20  # epochs on the labelled key data


PAPER = Config()
QUICK = Config(**models.SMALL, sdmlp_neurons=(500,), sdmlp_epochs=10, sdmlp_pretraining=2)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the bottleneck, class-incremental and i.i.d., and SDMLP, class-incremental."""
    data = setup.load_data("cifar100")
    return [
        *setup.make_stream_jobs(data, models.with_both_keys(setup.config), ORDERS),
        *make_sdmlp_jobs(setup, DeviceData(data, setup.device)),
    ]


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return final accuracies, with the paper's numbers."""
    return cifar10.stream_table("cifar100", records)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the stream."""
    return cifar10.plot(records, path, title)
