"""Folders: CIFAR's original binary files, and pictures in a folder a class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkvb._support import validation
from dkvb.embedding.datasets.dataset import Dataset, image_array, image_files

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif",
)  # fmt: skip


class _Layout(NamedTuple):
    """The files of one CIFAR, as its authors distribute it in binary."""

    name: str
    files: dict[str, list[str]]
    names: str  # the file with the classes' names
    label_bytes: int  # before the pixels; the last of them is the class


_CIFARS = (
    _Layout(
        "cifar10",
        {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
        "batches.meta.txt",
        1,
    ),
    _Layout("cifar100", {"train": ["train.bin"], "test": ["test.bin"]}, "fine_label_names.txt", 2),
)
_PIXELS = 3 * 32 * 32


def _layout(folder: Path) -> _Layout | None:
    for layout in _CIFARS:
        if any((folder / name).is_file() for names in layout.files.values() for name in names):
            return layout
    return None


def binary_cifar_name(folder: Path) -> str | None:
    """cifar10 or cifar100, if the folder holds its binary files."""
    layout = _layout(folder)
    return layout.name if layout else None


def binary_cifar(folder: Path, split: str | None) -> Dataset:
    """CIFAR-10 or CIFAR-100 from its binary files: rows of label bytes and 3 × 32 × 32 pixels."""
    layout = _layout(folder)
    if layout is None:
        raise ValueError(f"data: expected CIFAR's binary files; found none in {folder}")
    split = split or "train"
    validation.one_of("split", split, layout.files)
    width = layout.label_bytes + _PIXELS
    rows = np.concatenate([_rows(folder / name, width) for name in layout.files[split]])
    labels = rows[:, layout.label_bytes - 1]  # (n,)
    names = folder / layout.names
    pixels = rows[:, layout.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return image_array(
        f"{layout.name} {split}",
        pixels,  # (n, 32, 32, 3)
        _named(labels, names.read_text().split()) if names.is_file() else labels.astype(np.int64),
    )


def _rows(path: Path, width: int) -> NDArray[np.uint8]:
    if not path.is_file():
        raise ValueError(f"data: expected the file {path.name}; it is missing in {path.parent}")
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) == 0 or len(content) % width:
        raise ValueError(
            f"data {path}: expected rows of {width} bytes; got {len(content)} bytes; "
            "the file is cut or of another kind"
        )
    return content.reshape(-1, width)


def _named(labels: NDArray[Any], names: list[str]) -> NDArray[Any]:
    if int(labels.max()) >= len(names):
        raise ValueError(
            f"data: expected labels below {len(names)}, the number of names; got {labels.max()}"
        )
    named: NDArray[Any] = np.array(names)[labels]
    return named


def images(folder: Path, split: str | None) -> Dataset:
    """Pictures below a folder; those in subfolders have the subfolder's name as their class.

    The order is that of torchvision's ImageFolder. A folder named as the split is entered first.
    Without subfolders the pictures have no labels: enough to fit keys to.
    """
    if split is not None and not (folder / split).is_dir():
        inside = ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir())[:10])
        raise ValueError(
            f"split: expected a folder {split} in {folder}; found {inside or 'no folders'}"
        )
    if split is None and (folder / "train").is_dir():
        split = "train"
    root = folder / split if split else folder
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    if not classes:
        return image_files(str(root), _pictures(root), None, root)
    paths = {name: _pictures(root / name) for name in classes}
    labels = np.array([name for name in classes for _ in paths[name]])
    return image_files(str(root), [p for name in classes for p in paths[name]], labels, root)


def _pictures(folder: Path) -> list[Path]:
    return [
        Path(parent) / name
        for parent, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(IMAGE_SUFFIXES)
    ]
