"""Appendix D.4 of the paper (Figure 11): ImageNet in 500 tasks of two classes, keys from CIFAR-100.

    python -m paper run imagenet --data DIR --encoder clip --seeds 1 --device cuda --out OUT

The paper's final accuracies with CLIP: 49.0 class-incremental, 49.9 i.i.d. Embeddings are read from
memory maps, so that 1.28 million rows need not fit into memory. If the files are missing, synthetic
embeddings of the same shape are written to the folder once (1.3 GB) and every row of the table says
so: times and memory are meaningful, accuracies are not.

The paper does not state the epochs per task. At its learning rate, values grow in proportion to the
epochs, and predictions hardly depend on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS, Data
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_accuracy
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.encoders import default_keys
from paper.experiment import Setup
from paper.experiments import cifar10
from paper.source import Prepared
from paper.synthetic import Mixture

TARGET = "imagenet"
TITLE = "ImageNet, two classes at a time (appendix D.4, Figure 11)"


@dataclass(frozen=True)
class ImageNet(models.Schedule):
    """The paper's sizes, and the shape of the synthetic embeddings."""

    epochs: int = 20
    n_classes: int = 1000
    n_rows: int = 1_281_167
    n_test_rows: int = 50_000
    n_key_rows: int = 50_000
    width: int = 512


PAPER = ImageNet()
QUICK = ImageNet(
    **models.SMALL | {"epochs": 5},
    n_classes=40,
    n_rows=4000,
    n_test_rows=1000,
    n_key_rows=2000,
    width=64,
)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the bottleneck in both orders, evaluated after the last task."""
    source = setup.source
    keys = setup.keys or default_keys(source.encoder, TARGET)
    real = all(source.has(name, "train") for name in (TARGET, keys))
    data = setup.load_data("imagenet") if real else make_synthetic_data(setup)
    spec = models.bottleneck(setup.config, "bottleneck" if real else "bottleneck, synthetic")
    return setup.make_stream_jobs(data, [spec], ORDERS, final_only=True)


def make_synthetic_data(setup: Setup) -> Data:
    """Return synthetic data of ImageNet's shape, with key data of other classes."""
    config = setup.config
    warnings.warn(
        "imagenet: embeddings of ImageNet and CIFAR-100 were not found; synthetic embeddings of "
        f"{config.n_rows:,} × {config.width} are used, whose accuracies are not meaningful",
        stacklevel=2,
    )
    shape = (config.n_classes, config.width)
    train = Mixture(*shape, config.n_rows, seed=1)
    test = Mixture(*shape, config.n_test_rows, seed=1, sample=1)
    keys = Mixture(100, config.width, config.n_key_rows, seed=2)
    if isinstance(setup.source, Prepared):
        folder = setup.source.folder
        x, x_test, x_keys = (
            mixture.file(folder, f"imagenet-synthetic-{name}")
            for name, mixture in (("train", train), ("test", test), ("keys", keys))
        )
    else:
        x, x_test, x_keys = train.array(), test.array(), keys.array()
    names = {"train": "imagenet (synthetic)", "keys": "synthetic", "encoder": "synthetic"}
    return Data((x, train.labels()), (x_test, test.labels()), x_keys, names)


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return final accuracies, with the paper's numbers for real data."""
    return cifar10.stream_table("imagenet", records)


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot final accuracies."""
    return plot_accuracy(records, path, title)
