"""Files that hold embeddings: torch (x, y), npz with x and y, or npy."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support import validation
from dkvb.embedding.datasets.dataset import Dataset, vectors
from dkvb.embedding.datasets.tables import label_array
from dkvb.embedding.npz import read_embeddings, read_labelled

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
    """Embeddings (n, m) and, where there are any, labels (n,); read without pickle."""
    return vectors(path.name, *read(path))


def read(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The embeddings (n, m) of a file and, where it has any, its labels (n,)."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else nullcontext() as archive:
            labelled = archive is not None and "y.npy" in archive.namelist()
        return read_labelled(path, "data") if labelled else (read_embeddings(path, "data"), None)
    try:
        embeddings, labels = _from_torch(path) if path.suffix == ".pt" else (_from_npy(path), None)
    except Exception as error:  # a foreign file makes the readers raise anything
        raise ValueError(
            f"data {path}: expected embeddings (n, m); it cannot be read "
            f"({' '.join(str(error).split())[:200]}); write it again with numpy.savez(path, x=, y=)"
        ) from error
    embeddings = validation.as_float32(validation.rows(embeddings, f"data {path}"), f"data {path}")
    if labels is not None and labels.shape != (len(embeddings),):
        raise ValueError(
            f"data {path}: expected one label per row, ({len(embeddings)},); got {labels.shape}"
        )
    return embeddings.numpy(), labels


def _from_npy(path: Path) -> NDArray[Any]:
    # Mapped first: a header may promise more than there is, and that raises before memory is taken.
    return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


def _from_torch(path: Path) -> tuple[Any, NDArray[Any] | None]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, Mapping):
        if "x" not in content:
            raise ValueError(f"expected x and y; got {', '.join(map(str, content))[:100]}")
        content = (content["x"], content.get("y"))
    if isinstance(content, Tensor):
        return _stored(content), None
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise ValueError("expected a tensor, a pair (x, y), or a dict of x and y")
    rows, labels = _stored(content[0]), content[1]
    if isinstance(labels, list | tuple):
        return rows, label_array(list(labels), f"data {path}, y")
    return rows, None if labels is None else torch.as_tensor(labels).long().numpy()


def _stored(rows: Any) -> Any:
    """The same rows, if the file holds every number of them: a view may repeat a few for ever."""
    dense = isinstance(rows, Tensor) and rows.layout == torch.strided
    if dense and rows.numel() * rows.element_size() > rows.untyped_storage().nbytes():
        raise ValueError(f"expected a tensor of its own; got a view of shape {tuple(rows.shape)}")
    return rows
