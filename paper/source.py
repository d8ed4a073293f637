"""Sources of an experiment's embeddings: prepared files, or the bundled subset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dkvb.embedding.datasets import NAMES, bundled
from dkvb.embedding.npz import read_labelled
from dkvb.evaluation.grid import Data
from paper.encoders import find_encoder

Array = npt.NDArray[Any]
Rows = tuple[Array, Array]


class Source(Protocol):
    """Embeddings and labels by data set and split."""

    @property
    def encoder(self) -> str: ...
    def rows(self, dataset: str, split: str) -> Rows: ...
    def has(self, dataset: str, split: str) -> bool: ...
    def require(self, target: str, *keys: str) -> None: ...


@dataclass(frozen=True)
class Bundled:
    """The subset of CIFAR-10 and CIFAR-100 that comes with the package."""

    encoder: str = "resnet50 (bundled subset)"

    def rows(self, dataset: str, split: str) -> Rows:
        x, names = bundled.load(dataset, split)
        return x, np.unique(names, return_inverse=True)[1].astype(np.int64)

    def has(self, dataset: str, split: str) -> bool:
        return dataset in ("cifar10", "cifar100") and split in ("train", "test")

    def require(self, target: str, *keys: str) -> None:
        missing = [name for name in (target, *keys) if not self.has(name, "train")]
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
        """Return the file of a split, whichever of the encoder's names it has."""
        known = find_encoder(self.encoder)
        names = (self.encoder, known.name, known.paper_name) if known else (self.encoder,)
        paths = [self.folder / f"{dataset}-{name}-{split}.npz" for name in names if name]
        return next((path for path in paths if path.is_file()), paths[0])

    def rows(self, dataset: str, split: str) -> Rows:
        return _read(self.path(dataset, split))

    def has(self, dataset: str, split: str) -> bool:
        return self.path(dataset, split).is_file()

    def require(self, target: str, *keys: str) -> None:
        """Raise ValueError, with the commands that make them, if files are missing.

        The target needs a train and a test file; key data need a train file.
        """
        wanted = [(target, "train"), (target, "test"), *((name, "train") for name in keys)]
        missing = [(name, split) for name, split in wanted if not self.has(name, split)]
        if missing:
            names = ", ".join(self.path(*one).name for one in missing)
            lacking = dict.fromkeys(name for name, _ in missing)
            remedies = "; ".join(self._remedy(dataset) for dataset in lacking)
            raise ValueError(
                f"--data {self.folder}: expected files {names}, which are not there; {remedies}; "
                "or try --quick, which needs no files"
            )

    def _remedy(self, dataset: str) -> str:
        """Say how the files of a data set are made."""
        known = find_encoder(self.encoder)
        encoder = known.name if known else self.encoder
        if encoder == "convmixer" or dataset not in NAMES:
            return (
                f"{dataset} under {encoder} cannot be embedded by a command: write x (n, m) and "
                f"y (n,) of embeddings that you have to {self.path(dataset, 'train').name}"
            )
        data = "imagenet:FOLDER" if dataset == "imagenet" else dataset
        command = f"dkvb embed --encoder {encoder} --data {data} --out {self.folder}"
        return f"make them with: {command}"


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
