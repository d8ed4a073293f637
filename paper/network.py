"""Bottlenecks trained with autograd, for the experiments on decoders and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkvb import KeyValueBottleneck
from dkvb.evaluation import streams
from dkvb.evaluation.grid import ORDERS, DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_bars
from dkvb.evaluation.records import RunRecord
from dkvb.kernels.hashing import epoch_order
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.tables import get_order, group_by, metric

Loss = Callable[[Tensor, Tensor], Tensor]

# Fields of the schedule that these experiments do not use. Their records do not name them: the
# learning rate of values follows from that of a logit (`pace`) and is the metric `value_rate`.
UNUSED = ("evaluate_every", "baseline_rate", "learning_rate")


def make_network_jobs(
    setup: Setup,
    data: DeviceData,
    name: str,
    variants: Mapping[str, Mapping[str, str]],
    measure: Callable[..., Measurement],
    unused: Sequence[str] = UNUSED,
) -> list[Job]:
    """Return every variant of an experiment in both orders, per seed.

    `variants` has the parameters of each by its title. `measure` is called with setup, data, these
    parameters, order and seed, as keywords. Records name the fields of the configuration but those
    in `unused`.
    """
    settings = {k: v for k, v in vars(setup.config).items() if k not in unused}
    jobs = []
    for seed in setup.seeds:
        for title, parameters in variants.items():
            for order in ORDERS:
                variant = {**parameters, "order": order, "seed": seed}
                jobs.append(
                    make_measurement_job(
                        setup,
                        data,
                        title,
                        {"measure": name, **variant, "settings": settings},
                        partial(measure, setup=setup, data=data, **variant),
                    )
                )
    return jobs


def split_tasks(y: Any, order: str, seed: int, device: torch.device) -> list[Tensor]:
    """Return the indices of each task's samples."""
    stream = streams.iid(y, seed) if order == "iid" else streams.class_incremental(y, 2, seed)
    return [torch.from_numpy(task.indices).to(device) for task in stream]


def descend(
    model: KeyValueBottleneck,
    inputs: Callable[[Tensor], Tensor],
    targets: Tensor,
    tasks: Sequence[Tensor],
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    *,
    seed: int,
    epochs: int,
    batch_size: int = 256,
) -> None:
    """Train task by task.

    `inputs` returns, for the indices of a task, embeddings (n, m) or codes (n, C) of integers. It
    is called once per task, before its first step. `loss` compares outputs with targets.
    """
    model.train()
    for number, task in enumerate(tasks):
        rows, wanted = inputs(task), targets[task]
        forward = model if rows.is_floating_point() else model.forward_codes
        for epoch in range(number * epochs, (number + 1) * epochs):
            for batch in epoch_order(len(rows), seed, epoch, rows.device).split(batch_size):
                error = loss(forward(rows[batch]), wanted[batch])
                optimiser.zero_grad()
                error.backward()
                optimiser.step()


@torch.no_grad()
def accuracy(model: KeyValueBottleneck, X: Any, y: Any) -> float:
    """Return the accuracy when only keys that training used are searched, as in the paper."""
    codes = model.frozen_keys().codes(X, active=model.usage > 0).long()
    predicted = model.eval().forward_codes(codes).argmax(dim=1)
    return float(np.mean(predicted.cpu().numpy() == y))


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return one row per variant: final accuracy, class-incremental and i.i.d."""
    return {
        name: {
            order: metric(same, "final_accuracy", 100)
            for order, same in group_by(group, get_order).items()
        }
        for name, group in group_by(records, lambda r: r.classifier).items()
    }


def make_metric_table(
    records: Sequence[RunRecord], columns: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return one row per variant and order: metrics in percent, by the title of their column."""
    groups = group_by(records, lambda r: (r.classifier, get_order(r)))
    return {
        f"{name} ({order})": {
            title: metric(group, column, 100) for title, column in columns.items()
        }
        for (name, order), group in groups.items()
    }


def plot(
    records: Sequence[RunRecord], path: Path, title: str, label: str = "final accuracy (%)"
) -> Path:
    """Plot the final accuracies in both orders as bars."""
    return plot_bars(make_table(records), path, title, label)
