"""Folders: CIFAR's original binary files, and images in one folder per class."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkvb._support import validation
from dkvb._support.label_text import check_texts
from dkvb._support.optional import MissingPackageError, require
from dkvb.embedding.datasets.dataset import FORMATS, Dataset, image_array, image_files

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif",
)  # fmt: skip
HEIC_SUFFIXES = (".heic", ".heif")
SPLITS = frozenset(("train", "test", "val", "valid", "validation", "unlabeled"))


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
    """Images below a folder; those in subfolders have the subfolder's name as their class.

    The order is that of torchvision's ImageFolder. A folder of splits (train, test, ...) is entered
    first. Without subfolders the images have no labels. Names that start with a dot are passed
    over; classes without images, images beside the classes, and HEIC images that cannot be read
    are left out with a warning.
    """
    root = _split_folder(folder, split)
    found = {path: kind for path in _files(root) if (kind := _kind(path)) is not None}
    if "heic" in found.values() and not _reads_heic():
        left_out = [path for path, kind in found.items() if kind == "heic"]
        _warn(root, "HEIC image", "HEIC images", left_out, 'pip install "dkvb[heic]" reads them')
        found = {path: kind for path, kind in found.items() if kind != "heic"}
    classes = sorted(e.name for e in root.iterdir() if e.is_dir() and not e.name.startswith("."))
    if not classes:
        return image_files(str(root), list(found), None, root)
    loose = [path for path in found if path.parent == root]
    if loose:
        _warn(root, "image", "images", loose, "beside the folders of classes")
    own = {name: [p for p in found if p.relative_to(root).parts[0] == name] for name in classes}
    empty = [root / name for name in classes if not own[name]]
    if empty:
        _warn(root, "class", "classes", empty, "no images in the folder")
    check_texts(classes, f"data {root}, names of folders")
    paths = [path for name in classes for path in own[name] if path.parent != root]
    labels = np.array([name for name in classes for _ in own[name]])
    return image_files(str(root), paths, labels, root)


def _split_folder(folder: Path, split: str | None) -> Path:
    """The folder of one split; the folder itself where it is not divided into splits."""
    inside = sorted(e.name for e in folder.iterdir() if e.is_dir() and not e.name.startswith("."))
    if split is not None:
        if split not in inside:
            raise ValueError(
                f"split: expected a folder {split} in {folder}; "
                f"found {', '.join(inside[:10]) or 'no folders'}"
            )
        return folder / split
    # A class may be called train, too.
    if "train" not in inside or not SPLITS.issuperset(inside):
        return folder
    if len(inside) > 1:
        warnings.warn(
            f"data {folder}: the split train was taken; there are {', '.join(inside)}; choose with "
            "--split",
            stacklevel=4,
        )
    return folder / "train"


def _files(root: Path) -> list[Path]:
    """Files below a folder in order of their folders and names, without those that dots hide."""
    found = []
    for parent, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(parent) / name for name in sorted(names) if not name.startswith(".")]
    return sorted(found, key=lambda path: (str(path.parent), path.name))


def _kind(path: Path) -> str | None:
    suffix = path.suffix.lower()
    return "image" if suffix in IMAGE_SUFFIXES else "heic" if suffix in HEIC_SUFFIXES else None


def _reads_heic() -> bool:
    """Whether pillow-heif is installed; from then on pillow reads HEIC."""
    try:
        require("pillow_heif", "heic", "HEIC images").register_heif_opener()
    except MissingPackageError:
        return False
    if "HEIF" not in FORMATS:
        FORMATS.append("HEIF")
    return True


def _warn(root: Path, one: str, many: str, paths: list[Path], why: str) -> None:
    names = ", ".join(str(path.relative_to(root)) for path in paths[:3])
    more = ", ..." if len(paths) > 3 else ""
    left_out = f"1 {one} is" if len(paths) == 1 else f"{len(paths)} {many} are"
    warnings.warn(f"data {root}: {left_out} left out ({names}{more}): {why}", stacklevel=4)
