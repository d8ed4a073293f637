"""Sources of an experiment's embeddings: prepared files, or the bundled subset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dkvb.benchmark.grid import Data
from dkvb.embedding.datasets import bundled
from dkvb.embedding.npz import read_labelled

Array = npt.NDArray[Any]
Rows = tuple[Array, Array]


class Source(Protocol):
    """Embeddings and labels by data set and split."""

    @property
    def encoder(self) -> str: ...
    def rows(self, dataset: str, split: str) -> Rows: ...
    def has(self, dataset: str, split: str) -> bool: ...
    def require(self, *datasets: str) -> None: ...


@dataclass(frozen=True)
class Bundled:
    """The subset of CIFAR-10 and CIFAR-100 that comes with the package."""

    encoder: str = "resnet50 (bundled subset)"

    def rows(self, dataset: str, split: str) -> Rows:
        x, names = bundled.load(dataset, split)
        return x, np.unique(names, return_inverse=True)[1].astype(np.int64)

    def has(self, dataset: str, split: str) -> bool:
        return dataset in ("cifar10", "cifar100") and split in ("train", "test")

    def require(self, *datasets: str) -> None:
        missing = [name for name in datasets if not self.has(name, "train")]
        if missing:
            raise ValueError(
                f"--quick: expected an experiment on CIFAR-10 and CIFAR-100, which are bundled; "
                f"this one needs {', '.join(missing)}; prepare files and give --data DIR"
            )


@dataclass(frozen=True)
class Prepared:
    """A folder of files DATASET-ENCODER-SPLIT.npz with x (n, m) and y (n,)."""

    folder: Path
    encoder: str = "resnet50"

    def path(self, dataset: str, split: str) -> Path:
        return self.folder / f"{dataset}-{self.encoder}-{split}.npz"

    def rows(self, dataset: str, split: str) -> Rows:
        return _read(self.path(dataset, split))

    def has(self, dataset: str, split: str) -> bool:
        return self.path(dataset, split).is_file()

    def require(self, *datasets: str) -> None:
        """Raise ValueError, with the commands that make them, if files are missing."""
        missing = [
            self.path(dataset, split).name
            for dataset in datasets
            for split in ("train", "test")
            if not self.has(dataset, split)
        ]
        if missing:
            lacking = dict.fromkeys(name.partition("-")[0] for name in missing)
            commands = "; ".join(
                f"dkvb embed --encoder {self.encoder} --data {dataset} --out {self.folder}"
                for dataset in lacking
            )
            raise ValueError(
                f"--data {self.folder}: expected files {', '.join(missing)}, which are not there; "
                f"make them with: {commands}; or try --quick, which needs no files"
            )


@lru_cache(maxsize=8)
def _read(path: Path) -> Rows:
    return read_labelled(path, "--data")


def load_stream_data(source: Source, target: str, keys: str) -> Data:
    """Load train and test data of `target`, and the train embeddings of `keys`."""
    source.require(target, keys)
    names = {"train": target, "keys": keys, "encoder": source.encoder}
    return Data(
        source.rows(target, "train"),
        source.rows(target, "test"),
        source.rows(keys, "train")[0],
        names,
    )
