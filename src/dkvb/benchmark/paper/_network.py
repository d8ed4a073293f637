"""Bottlenecks trained with autograd, for the experiments on decoders and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dkvb import KeyValueBottleneck
from dkvb._support.hashing import epoch_order
from dkvb.benchmark import streams
from dkvb.benchmark.paper.tables import get_order, group_by, metric
from dkvb.benchmark.plots import plot_bars
from dkvb.benchmark.records import RunRecord

# Fields of the schedule that these experiments do not use. Their records do not name them: the
# learning rate of values follows from that of a logit (`pace`) and is the metric `value_rate`.
UNUSED = ("evaluate_every", "baseline_rate", "learning_rate")


def descend(
    model: KeyValueBottleneck,
    rows: Tensor,
    y: Any,
    optimiser: torch.optim.Optimizer,
    *,
    order: str,
    seed: int,
    epochs: int,
    batch_size: int = 256,
    label_smoothing: float = 0.1,
    penalty: Callable[[], Tensor] | None = None,
) -> None:
    """Train on embeddings (n, m), or on codes (n, C) of integers, task by task."""
    labels = torch.from_numpy(y).to(rows.device)
    stream = streams.iid(y, seed) if order == "iid" else streams.class_incremental(y, 2, seed)
    for number, task in enumerate(stream):
        own = torch.from_numpy(task.indices).to(rows.device)
        descend_on_task(
            model,
            rows[own],
            labels[own],
            optimiser,
            seed=seed,
            first_epoch=number * epochs,
            epochs=epochs,
            batch_size=batch_size,
            label_smoothing=label_smoothing,
            penalty=penalty,
        )


def descend_on_task(
    model: KeyValueBottleneck,
    rows: Tensor,
    labels: Tensor,
    optimiser: torch.optim.Optimizer,
    *,
    seed: int,
    first_epoch: int,
    epochs: int,
    batch_size: int = 256,
    label_smoothing: float = 0.1,
    penalty: Callable[[], Tensor] | None = None,
) -> None:
    """Train on the rows of one task; `first_epoch` counts the epochs of earlier tasks."""
    forward = model if rows.is_floating_point() else model.forward_codes
    model.train()
    for epoch in range(first_epoch, first_epoch + epochs):
        for batch in epoch_order(len(rows), seed, epoch, rows.device).split(batch_size):
            loss = cross_entropy(
                forward(rows[batch]), labels[batch], label_smoothing=label_smoothing
            )
            loss = loss if penalty is None else loss + penalty()
            optimiser.zero_grad()
            loss.backward()
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


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the table as bars."""
    return plot_bars(make_table(records), path, title, "final accuracy (%)")
