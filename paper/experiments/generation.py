"""Section 6 of the paper: a pre-trained generative decoder behind the bottleneck.

    python -m paper run generation --data DIR --seeds 1,2,3,4,5 --out OUT

The paper calls pre-trained generative decoders a promising direction and gives no numbers. Here an
autoencoder is trained on the key data. Its decoder, from a few numbers to an embedding, replaces
the softmax: the mean of the fetched values is decoded to the embedding that was put in. Values
learn class-incrementally or from i.i.d. data, with the decoder fixed or trained along. The table
has the explained variance of test embeddings, and how many decoded embeddings lie nearest to the
mean of their own class.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dkvb import KeyValueBottleneck
from dkvb.evaluation.grid import DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.records import RunRecord
from dkvb.kernels.hashing import epoch_order
from paper import models, network
from paper.experiment import Measurement, Setup
from paper.learned import fit_shared_keys

TITLE = "A pre-trained generative decoder (section 6)"
MODES = ("fixed", "trained along")
_BATCH = 256


@dataclass(frozen=True)
class Config(models.Schedule):
    """A smaller bottleneck, the autoencoder, and learning rates."""

    n_codebooks: int = 64
    n_pairs: int = 1024
    epochs: int = 10
    latent: int = 64  # numbers per value
    hidden: int = 512
    decoder_epochs: int = 10  # of the autoencoder, on key data
    pace: float = 5.0  # learning rate of values, in units of codebooks / the decoder's gain
    decoder_rate: float = 0.001  # where it is trained along


PAPER = Config()
QUICK = Config(
    **models.SMALL | {"n_codebooks": 32, "n_pairs": 128, "epochs": 10}, latent=16, hidden=64
)


class Decoder(nn.Module):
    """Decodes the mean over codebooks of fetched values to an embedding."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, fetched: Tensor) -> Tensor:
        """Return embeddings (n, m) of values (n, C, latent)."""
        decoded: Tensor = self.network(fetched.mean(dim=1))
        return decoded


def make_jobs(setup: Setup) -> list[Job]:
    """Return a fixed decoder and one that is trained along, in both orders, per seed."""
    data = DeviceData(setup.load_data(), setup.device)
    variants = {f"decoder {mode}": {"mode": mode} for mode in MODES}
    unused = (*network.UNUSED, "label_smoothing")
    return network.make_network_jobs(setup, data, "generation", variants, _measure, unused)


@lru_cache(maxsize=1)  # the variants of a seed run one after the other
def pretrain_decoder(data: DeviceData, config: Config, seed: int) -> nn.Module:
    """Return the decoder of an autoencoder trained on key data of unit variance."""
    rows = torch.as_tensor(data.on_device(data.keys))
    x = rows / rows.std()  # (n, m)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        m, h, q = x.shape[1], config.hidden, config.latent
        encoder = nn.Sequential(nn.Linear(m, h), nn.ReLU(), nn.Linear(h, q)).to(x.device)
        decoder = nn.Sequential(nn.Linear(q, h), nn.ReLU(), nn.Linear(h, m)).to(x.device)
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.001)
    for epoch in range(config.decoder_epochs):
        for batch in epoch_order(len(x), seed, epoch, x.device).split(_BATCH):
            loss = (decoder(encoder(x[batch])) - x[batch]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return decoder


def _gain(decoder: nn.Module, latent: int) -> float:
    """Return the squared largest singular value of the decoder's Jacobian at zero."""
    device = next(decoder.parameters()).device
    slope = torch.autograd.functional.jacobian(decoder, torch.zeros(latent, device=device))
    return float(torch.linalg.matrix_norm(slope, ord=2)) ** 2


def _measure(setup: Setup, data: DeviceData, mode: str, order: str, seed: int) -> Measurement:
    config = setup.config
    keys = fit_shared_keys(setup, data, seed)
    (x, y), (x_test, y_test) = data.inputs_for(models.bottleneck(config))
    unit = torch.as_tensor(data.on_device(data.keys)).std()
    rows, test = (torch.as_tensor(part).to(unit.device) / unit for part in (x, x_test))
    decoder = Decoder(deepcopy(pretrain_decoder(data, config, seed)))
    model = KeyValueBottleneck(
        keys,
        rows.shape[1],
        value_dim=config.latent,
        decoder=decoder,
        train_decoder=mode != "fixed",
        seed=seed,
    )
    rate = config.pace * keys.n_codebooks / _gain(decoder.network, config.latent)
    groups: list[dict[str, Any]] = [{"params": [model.values], "lr": rate}]
    learned = [p for p in model.decoder.parameters() if p.requires_grad]
    if learned:
        groups.append({"params": learned, "lr": config.decoder_rate})
    codes = keys.codes(x).long()
    network.descend(
        model,
        lambda task: codes[task],
        rows,
        network.split_tasks(y, order, seed, rows.device),
        torch.optim.SGD(groups),
        lambda decoded, wanted: (decoded - wanted).square().sum(dim=1).mean() / 2,
        seed=seed,
        epochs=config.epochs,
    )
    with torch.no_grad():
        used = keys.codes(x_test, active=model.usage > 0).long()
        decoded = model.eval().forward_codes(used)
    labels = torch.from_numpy(y).to(rows.device)
    means = torch.stack([rows[labels == c].mean(dim=0) for c in range(int(y.max()) + 1)])
    nearest = torch.cdist(decoded, means).argmin(dim=1).cpu().numpy()
    left = (decoded - test).square().sum() / (test - test.mean(dim=0)).square().sum()
    return Measurement(
        {
            "explained_variance": 1 - float(left),
            "final_accuracy": float(np.mean(nearest == y_test)),
            "value_rate": rate,
        }
    )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return explained variance, and the accuracy of the nearest class mean."""
    columns = {
        "explained variance (%)": "explained_variance",
        "nearest class mean (%)": "final_accuracy",
    }
    return network.make_metric_table(records, columns)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the accuracy of decoded embeddings."""
    return network.plot(records, path, title, "nearest class mean (%)")
