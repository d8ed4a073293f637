"""Section 6 of the paper: keys fitted further on unlabelled rows while values keep their keys.

    python -m paper run refit --data DIR --seeds 1,2,3,4,5 --out OUT

The paper suggests, without numbers, that keys can be fine-tuned asynchronously by an unsupervised
task when the distribution shifts. Here keys from other data learn a stream of CIFAR-10 classes.
Before each task, moving averages (appendix C, without expiry) move the keys towards unlabelled
rows: those of the task only, or those of the whole training set. A key keeps its value. Compared
are keys that stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dkvb import KeyValueBottleneck
from dkvb.evaluation.grid import DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.records import RunRecord
from paper import models, network
from paper.analysis.refitting import move_keys
from paper.analysis.robustness import changed_codes
from paper.experiment import Measurement, Setup
from paper.learned import fit_shared_keys

TITLE = "Keys fitted further on unlabelled rows (section 6)"
VARIANTS = ("fixed", "task", "target")


@dataclass(frozen=True)
class Config(models.Schedule):
    """A smaller bottleneck, few epochs, and the rate at which keys move."""

    n_codebooks: int = 64
    n_pairs: int = 1024
    epochs: int = 5
    learning_rate: float = 192.0  # of values: three per logit
    decay: float = 0.95
    refit_epochs: int = 1  # before each task


PAPER = Config()
QUICK = Config(
    **models.SMALL | {"n_codebooks": 32, "n_pairs": 128, "epochs": 10}, learning_rate=96.0
)


def make_jobs(setup: Setup) -> list[Job]:
    """Return keys that stay, and keys that move on each task's rows or on all, in both orders."""
    data = DeviceData(setup.load_data(), setup.device)
    variants = {f"keys {variant}": {"variant": variant} for variant in VARIANTS}
    unused = ("evaluate_every", "baseline_rate")
    return network.make_network_jobs(setup, data, "refit", variants, _measure, unused)


def _measure(setup: Setup, data: DeviceData, variant: str, order: str, seed: int) -> Measurement:
    config = setup.config
    first = keys = fit_shared_keys(setup, data, seed)
    (x, y), (x_test, y_test) = data.inputs_for(models.bottleneck(config))
    rows = torch.as_tensor(x)
    model = KeyValueBottleneck(keys, int(y.max()) + 1, seed=seed)

    def codes(task: Tensor) -> Tensor:
        """Return the codes of a task's rows, after the keys have moved."""
        nonlocal keys
        if variant != "fixed":
            unlabelled = rows[task] if variant == "task" else rows
            keys = move_keys(keys, unlabelled, epochs=config.refit_epochs, decay=config.decay)
            with torch.no_grad():
                model.keys.copy_(keys.keys)
        return keys.codes(rows[task]).long()

    network.descend(
        model,
        codes,
        torch.from_numpy(y).to(rows.device),
        network.split_tasks(y, order, seed, rows.device),
        torch.optim.SGD([model.values], lr=config.learning_rate),
        partial(cross_entropy, label_smoothing=config.label_smoothing),
        seed=seed,
        epochs=config.epochs,
    )
    moved: Tensor = (keys.keys - first.keys).norm() / first.keys.norm()
    changed = changed_codes(first.codes(x_test), keys.codes(x_test))
    return Measurement(
        {
            "final_accuracy": network.accuracy(model, x_test, y_test),
            "keys_moved": float(moved),
            "codes_changed": float(changed.double().mean()),
        }
    )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return final accuracies, how far keys moved and how many codes changed."""
    columns = {
        "final accuracy": "final_accuracy",
        "keys moved (%)": "keys_moved",
        "codes changed (%)": "codes_changed",
    }
    return network.make_metric_table(records, columns)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracies in both orders."""
    return network.plot(records, path, title)
