"""Files that hold embeddings: torch (x, y), npz with x and y, or x.npy and y.npy side by side."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support import validation
from dkvb._support.optional import MissingPackageError, require_torch
from dkvb.embedding.datasets.dataset import Dataset, vectors
from dkvb.embedding.datasets.tables import label_array
from dkvb.embedding.npz import (
    check_labels,
    in_memory_or_mapped,
    read_embeddings,
    read_labelled,
)

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


def is_npy_pair(folder: Path) -> bool:
    """Whether the folder holds x.npy and y.npy, and so embeddings with their labels."""
    return (folder / "x.npy").is_file() and (folder / "y.npy").is_file()


def npy_labels(path: Path) -> Path | None:
    """Return the file of labels beside a file of embeddings: y.npy beside x.npy, or a-y.npy
    beside a-x.npy; None where there is none."""
    stem = path.stem
    if path.suffix != ".npy" or stem[-1:] not in ("x", "X") or stem[-2:-1].isalnum():
        return None
    found = [path.with_name(f"{stem[:-1]}{letter}.npy") for letter in ("y", "Y")]
    return next((one for one in found if one.is_file()), None)


def read(path: Path, labels_path: Path | None = None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The embeddings (n, m) of a file and, where there are any, their labels (n,).

    Labels of an npy file stand in another: `labels_path`, or y.npy beside x.npy.
    """
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else nullcontext() as archive:
            labelled = archive is not None and "y.npy" in archive.namelist()
        return read_labelled(path, "data") if labelled else (read_embeddings(path, "data"), None)
    try:
        if path.suffix == ".pt":
            embeddings, labels = _from_torch(path)
        else:
            labels_path = labels_path or npy_labels(path)
            embeddings = map_npy(path)
            labels = None if labels_path is None else np.array(map_npy(labels_path))
    except MissingPackageError:
        raise
    except Exception as error:  # a foreign file makes the readers raise anything
        raise ValueError(
            f"data {path}: expected embeddings (n, m); it cannot be read "
            f"({' '.join(str(error).split())[:200]}); write it again with numpy.savez(path, x=, y=)"
        ) from error
    embeddings = in_memory_or_mapped(validation.rows(embeddings, f"data {path}"), f"data {path}")
    if labels is not None:
        check_labels(labels.dtype, labels.shape, len(embeddings), f"data {labels_path or path}")
    return embeddings, labels


def map_npy(path: Path) -> NDArray[Any]:
    """Return an npy file as a memory map: a header may promise more than there is."""
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _from_torch(path: Path) -> tuple[Any, NDArray[Any] | None]:
    torch = require_torch(f"data {path}")
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, Mapping):
        if "x" not in content:
            raise ValueError(f"expected x and y; got {', '.join(map(str, content))[:100]}")
        content = (content["x"], content.get("y"))
    if isinstance(content, torch.Tensor):
        return _stored(content), None
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise ValueError("expected a tensor, a pair (x, y), or a dict of x and y")
    rows, labels = _stored(content[0]), content[1]
    if isinstance(labels, list | tuple):
        return rows, label_array(list(labels), f"data {path}, y")
    return rows, None if labels is None else torch.as_tensor(labels).long().numpy()


def _stored(rows: Any) -> Any:
    """The same rows, if the file holds every number of them: a view may repeat a few for ever."""
    dense = validation.is_tensor(rows) and str(rows.layout) == "torch.strided"
    if dense and rows.numel() * rows.element_size() > rows.untyped_storage().nbytes():
        raise ValueError(f"expected a tensor of its own; got a view of shape {tuple(rows.shape)}")
    return rows
