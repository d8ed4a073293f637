"""Section 6 of the paper: gradients into keys and projection.

    python -m paper run straight-through --data DIR --seeds 1,2,3 --out OUT

The paper mentions sampling and straight-through estimators as possible improvements, without
numbers. Here only values learn, or keys and projection too: with the nearest key and the gradient
of a softmax over distances, or with keys sampled from it. Keys that learn can forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from dkvb import KeyValueBottleneck
from dkvb.evaluation.grid import DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.records import RunRecord
from paper import models, network
from paper.experiment import Measurement, Setup
from paper.learned import fit_shared_keys

TITLE = "Gradients into keys and projection (section 6)"
GRADIENTS = {"values": "values alone", "straight-through": "straight-through", "gumbel": "sampled"}


@dataclass(frozen=True)
class Config(models.Schedule):
    """A small bottleneck on a subset: every step searches again, since keys have moved."""

    n_codebooks: int = 16
    n_pairs: int = 256
    rows: int = 5000
    epochs: int = 3
    pace: float = 10.0  # learning rate of a logit; that of values is pace × codebooks
    key_rate: float = 1.0  # of keys and projection
    temperature: float = 1.0
    sampling_temperature: float = 0.1


PAPER = Config()
QUICK = Config(**models.SMALL | {"n_codebooks": 16, "n_pairs": 64, "epochs": 4}, rows=3000)


def make_jobs(setup: Setup) -> list[Job]:
    """Return all kinds of gradients in both orders, per seed."""
    data = DeviceData(setup.load_data(), setup.device)
    variants = {shown: {"gradient": gradient} for gradient, shown in GRADIENTS.items()}
    return network.make_network_jobs(setup, data, "straight-through", variants, _measure)


def _measure(setup: Setup, data: DeviceData, gradient: str, order: str, seed: int) -> Measurement:
    config = setup.config
    keys = fit_shared_keys(setup, data, seed)
    (x, y), (x_test, y_test) = data.inputs_for(models.bottleneck(config))
    few = np.random.default_rng(seed).permutation(len(y))[: config.rows]
    cold = config.sampling_temperature if gradient == "gumbel" else config.temperature
    model = KeyValueBottleneck(
        keys, int(y.max()) + 1, gradient=gradient, temperature=cold, seed=seed
    )
    groups: list[dict[str, Any]] = [
        {"params": [model.values], "lr": config.pace * keys.n_codebooks}
    ]
    moving = [p for name, p in model.named_parameters() if name in ("keys", "projection")]
    if moving:
        groups.append({"params": moving, "lr": config.key_rate})
    rows = torch.as_tensor(x)[few]
    inputs = rows if moving else keys.codes(rows).long()
    network.descend(
        model,
        lambda task: inputs[task],
        torch.from_numpy(y[few]).to(rows.device),
        network.split_tasks(y[few], order, seed, rows.device),
        torch.optim.SGD(groups),
        partial(cross_entropy, label_smoothing=config.label_smoothing),
        seed=seed,
        epochs=config.epochs,
    )
    apart = (model.keys.detach() - keys.keys).norm() / keys.keys.norm()
    return Measurement(
        {
            "final_accuracy": network.accuracy(model, x_test, y_test),
            "keys_moved": float(apart),
            "value_rate": config.pace * keys.n_codebooks,
        }
    )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each kind of gradient in both orders."""
    return network.make_table(records)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the table as bars."""
    return network.plot(records, path, title)
