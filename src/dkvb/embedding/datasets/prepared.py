"""Files of rows that are embeddings already: torch (rows, labels), npz with x and y, or npy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support import validation
from dkvb.embedding.datasets.dataset import Dataset, vectors

SUFFIXES = (".pt", ".npz", ".npy")
_FILES = {split: f"all_data_{split}.pt" for split in ("train", "test")}  # as SDMLP's authors do


def is_folder(folder: Path) -> bool:
    """Whether the folder holds prepared rows under the names that SDMLP's authors gave them."""
    return any((folder / name).is_file() for name in _FILES.values())


def file_of(folder: Path, split: str | None) -> Path:
    """The file of one split."""
    split = split or "train"
    validation.one_of("split", split, _FILES)
    return folder / _FILES[split]


def load(path: Path) -> Dataset:
    """Rows (n, m) and, where there are any, labels (n,); read without pickle."""
    try:
        rows, labels = _read(path)
    except Exception as error:  # a foreign file makes the readers raise anything
        raise ValueError(
            f"data {path}: expected rows of numbers, and labels; it cannot be read "
            f"({' '.join(str(error).split())[:200]})"
        ) from error
    return vectors(path.name, rows, labels)


def _read(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    if path.suffix == ".pt":
        content = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(content, Tensor):
            return content.numpy(), None
        rows, labels = content
        return torch.as_tensor(rows).numpy(), torch.as_tensor(labels).long().numpy()
    content = np.load(path, allow_pickle=False)
    if path.suffix == ".npy":
        return content, None
    with content:
        return content["x"], content["y"] if "y" in content.files else None
