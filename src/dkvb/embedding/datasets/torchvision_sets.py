"""CIFAR-10, CIFAR-100, STL-10 and ImageNet as torchvision keeps them on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dkvb._support import validation
from dkvb._support.optional import require
from dkvb.embedding.datasets.dataset import Dataset, image_array, image_files

_SPLITS = {
    "cifar10": ("train", "test"),
    "cifar100": ("train", "test"),
    "stl10": ("train", "test", "unlabeled"),
    "imagenet": ("train", "val"),
}
_CLASSES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "stl10": "STL10", "imagenet": "ImageNet"}


def load(name: str, split: str | None, folder: Path | None, download_to: Path | None) -> Dataset:
    """The data set `name`, in `folder`; downloaded where none is given, but for ImageNet."""
    split = split or "train"
    if name == "imagenet" and split == "test":
        split = "val"  # whose labels are public
    validation.one_of("split", split, _SPLITS[name])
    library = require("torchvision.datasets", "torchvision", f"data {name}")
    if name == "imagenet" and folder is None:
        raise ValueError(
            "data: expected imagenet:FOLDER, with the archives or the unpacked train and val; "
            "got imagenet, which cannot be downloaded"
        )
    root = folder or (download_to or Path.home() / ".cache" / "dkvb") / name
    settings: dict[str, Any] = {} if name == "imagenet" else {"download": folder is None}
    settings |= {"train": split == "train"} if name.startswith("cifar") else {"split": split}
    if folder is None:
        root.mkdir(parents=True, exist_ok=True)
    try:
        found = getattr(library, _CLASSES[name])(root=str(root), **settings)
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"data {name}: expected torchvision's files in {root}; "
            f"{' '.join(str(error).split())[:200]}; "
            f"give the folder that holds them: {name}:FOLDER"
        ) from error
    return as_dataset(f"{name} {split}", found)


def as_dataset(name: str, found: Any) -> Dataset:
    """A data set of torchvision as one of ours, without decoding anything yet."""
    if hasattr(found, "samples"):  # ImageFolder and ImageNet
        paths = [Path(path) for path, _ in found.samples]
        # Of ImageNet's names some are used twice; the WordNet identifiers are not.
        names = np.array(getattr(found, "wnids", found.classes))
        return image_files(name, paths, names[np.array(found.targets)], Path(found.root))
    pixels = found.data  # (n, 32, 32, 3), or STL-10's (n, 3, 96, 96)
    if pixels.shape[-1] != 3:
        pixels = pixels.transpose(0, 2, 3, 1)
    targets = np.array(getattr(found, "targets", getattr(found, "labels", None)))
    labelled = targets.ndim == 1 and int(targets.min()) >= 0  # STL-10's unlabelled rows have -1
    return image_array(name, pixels, np.array(found.classes)[targets] if labelled else None)
