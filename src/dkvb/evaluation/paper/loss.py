"""Figure 4 of the paper: train and test loss along the stream.

    dkvb reproduce loss --data DIR --seeds 1,2,3,4,5 --out OUT

The paper reports that the bottleneck has equal losses on class-incremental and i.i.d. data, and
that the linear probe's loss is lower on i.i.d. data and grows class-incrementally. The runs are
those of `cifar10`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.paper import _models, cifar10
from dkvb.evaluation.paper.experiment import Setup
from dkvb.evaluation.paper.tables import get_order, group_by, metric
from dkvb.evaluation.plots import plot_losses
from dkvb.evaluation.records import RunRecord, mean_and_std

TITLE = "Loss along the stream (Figure 4)"
PAPER, QUICK = cifar10.PAPER, cifar10.QUICK


def make_jobs(setup: Setup) -> list[Job]:
    """Return bottleneck and linear probe, class-incremental and i.i.d."""
    models = [_models.bottleneck(setup.config), _models.linear(setup.config)]
    return setup.make_stream_jobs(setup.load_data(), models, ORDERS)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final losses; the train loss is measured on the last task."""
    return {
        f"{name} ({order})": {
            "train loss": mean_and_std([r.curve[-1].train_loss for r in group]),
            "test loss": metric(group, "test_loss"),
        }
        for (name, order), group in group_by(
            records, lambda r: (r.classifier, get_order(r))
        ).items()
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot both losses over the stream."""
    return plot_losses(records, path, title)
