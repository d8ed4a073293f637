"""Figure 3b of the paper: train and test loss along the stream.

    dkvb reproduce loss --data DIR --seeds 1,2,3,4,5 --out OUT

The paper: the bottleneck's loss is the same class-incrementally and iid; the linear probe's is
lower iid and runs away class-incrementally. The runs are those of `cifar10`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dkvb.benchmark.grid import ORDERS
from dkvb.benchmark.jobs import Job
from dkvb.benchmark.paper import _models, cifar10
from dkvb.benchmark.paper.experiment import Setup
from dkvb.benchmark.paper.tables import get_order, group_by, metric
from dkvb.benchmark.plots import plot_losses
from dkvb.benchmark.records import RunRecord, mean_and_std

TITLE = "Loss along the stream (Figure 3b)"
PAPER, QUICK = cifar10.PAPER, cifar10.QUICK


def make_jobs(setup: Setup) -> list[Job]:
    """Bottleneck and linear probe, class-incremental and iid."""
    models = [_models.bottleneck(setup.config), _models.linear(setup.config)]
    return setup.make_stream_jobs(setup.load_data(), models, ORDERS)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Losses at the end; the train loss is that of the last task's rows."""
    return {
        f"{name} ({order})": {
            "train loss": mean_and_std([r.curve[-1].train_loss for r in own]),
            "test loss": metric(own, "test_loss"),
        }
        for (name, order), own in group_by(records, lambda r: (r.classifier, get_order(r))).items()
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Both losses over the stream."""
    return plot_losses(records, path, title)
