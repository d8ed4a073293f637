"""Section 6 of the paper: parametric decoders.

    python -m paper run decoders --data DIR --seeds 1,2,3 --out OUT

The paper gives no numbers. It suggests training a decoder on i.i.d. data, and fixing or
regularising it when the distribution changes. Here a linear decoder and an MLP over the
concatenated values are free, regularised towards their initial weights, or fixed, beside the
paper's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from dkvb import Keys, KeyValueBottleneck
from dkvb.evaluation.grid import DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.records import RunRecord
from paper import models, network
from paper.experiment import Measurement, Setup
from paper.learned import fit_shared_keys

TITLE = "Parametric decoders (section 6)"
MODES = ("free", "regularised", "fixed")


@dataclass(frozen=True)
class Config(models.Schedule):
    """A smaller bottleneck, and learning rates for few epochs."""

    n_codebooks: int = 64
    n_pairs: int = 1024
    epochs: int = 5
    pace: float = 3.0  # learning rate of a logit; that of values follows from the decoder
    decoder_rate: float = 0.1
    strength: float = 1.0  # of the regularisation


PAPER = Config()
QUICK = Config(**models.SMALL | {"n_codebooks": 32, "n_pairs": 128, "epochs": 10})

# Factor by which a randomly initialised decoder shrinks the step of a value to that of a logit.
_SHRINKS = {"mean": None, "linear": 3.0, "mlp": 18.0}


def make_jobs(setup: Setup) -> list[Job]:
    """Return all decoders and modes in both orders, per seed."""
    data = DeviceData(setup.load_data(), setup.device)
    variants = {"mean": {"decoder": "mean", "mode": ""}}
    for decoder in ("linear", "mlp"):
        for mode in MODES:
            variants[f"{decoder}, {mode}"] = {"decoder": decoder, "mode": mode}
    return network.make_network_jobs(setup, data, "decoders", variants, _measure)


def _measure(
    setup: Setup, data: DeviceData, decoder: str, mode: str, order: str, seed: int
) -> Measurement:
    config = setup.config
    keys = fit_shared_keys(setup, data, seed)
    (_, y), (x_test, y_test) = data.inputs_for(models.bottleneck(config))
    model = KeyValueBottleneck(
        keys, int(y.max()) + 1, decoder=decoder, train_decoder=mode != "fixed", seed=seed
    )
    gain = _SHRINKS[decoder] or keys.n_codebooks
    learned = [p for p in model.decoder.parameters() if p.requires_grad]
    starts = [p.detach().clone() for p in learned]

    def loss(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        error = cross_entropy(logits, wanted, label_smoothing=config.label_smoothing)
        if mode != "regularised":
            return error
        apart = [(p - start).square().sum() for p, start in zip(learned, starts, strict=True)]
        return error + torch.stack(apart).sum().mul(config.strength)

    groups: list[dict[str, Any]] = [{"params": [model.values], "lr": config.pace * gain}]
    if learned:
        groups.append({"params": learned, "lr": config.decoder_rate})
    codes = _codes(keys, data)
    network.descend(
        model,
        lambda task: codes[task],
        torch.from_numpy(y).to(codes.device),
        network.split_tasks(y, order, seed, codes.device),
        torch.optim.SGD(groups),
        loss,
        seed=seed,
        epochs=config.epochs,
    )
    return Measurement(
        {
            "final_accuracy": network.accuracy(model, x_test, y_test),
            "value_rate": config.pace * gain,
        }
    )


@lru_cache(maxsize=1)  # the variants of a seed run one after the other
def _codes(keys: Keys, data: DeviceData) -> torch.Tensor:
    """Return the codes of the training data (n, C)."""
    return keys.codes(data.on_device(data.train[0])).long()


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy of each decoder in both orders."""
    return network.make_table(records)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the table as bars."""
    return network.plot(records, path, title)
