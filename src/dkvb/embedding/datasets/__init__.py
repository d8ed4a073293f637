"""Data sets by name or path.

cifar10, cifar100, stl10, imagenet   torchvision's, with :FOLDER where the files lie
hf:NAME[:CONFIG], hf:FOLDER          Hugging Face datasets, by name or saved to disk
FOLDER                               CIFAR's original binary files; prepared rows
                                     (all_data_train.pt); one table per split (train.csv);
                                     images, one folder per class
FILE.csv, .tsv, .jsonl               texts, or paths of images, one per row
FILE.pt, .npz, .npy                  prepared rows
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from dkvb._support import validation
from dkvb.embedding.datasets import folders, prepared, tables
from dkvb.embedding.datasets.dataset import Dataset
from dkvb.embedding.encoders.settings import KINDS

__all__ = ["NAMES", "Dataset", "load_dataset", "splits_of"]

NAMES = ("cifar10", "cifar100", "stl10", "imagenet")


def load_dataset(
    data: str | Path,
    split: str | None = None,
    *,
    kind: str = "image",
    column: str | None = None,
    label_column: str | None = None,
    download_to: Path | None = None,
) -> Dataset:
    """The data set `data`, of items of one `kind`, which is what the encoder takes.

    `column` and `label_column` name the columns of tables, where their names are not plain.
    `download_to` is where torchvision's data sets are looked for and put without a folder.
    """
    validation.one_of("kind", kind, KINDS)
    name, _, rest = str(data).partition(":")
    if name in NAMES:
        package = import_module("dkvb.embedding.datasets.torchvision_sets")
        found = package.load(name, split, Path(rest) if rest else None, download_to)
    elif name == "hf" and rest:
        package = import_module("dkvb.embedding.datasets.hugging_face")
        found = package.load(rest, split, kind, column, label_column)
    else:
        found = _from_path(Path(data).expanduser(), split, kind, column, label_column)
    dataset: Dataset = found
    if dataset.kind != kind:
        raise ValueError(
            f"data: expected items of kind {kind}, which the encoder takes; "
            f"{data} holds {dataset.kind}s; choose another encoder or other data"
        )
    return dataset


def splits_of(data: str | Path) -> tuple[str, ...]:
    """The splits to learn from and to test on, where the data set has both.

    >>> splits_of("cifar10")
    ('train', 'test')
    """
    both = ("train", "test")
    name, _, rest = str(data).partition(":")
    if name in NAMES or (name == "hf" and rest):
        return both
    path = Path(data).expanduser()
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    endings = ("", *tables.SUFFIXES)
    divided = all(any(split + ending in names for ending in endings) for split in both)
    known = folders.binary_cifar_name(path) is not None or prepared.is_folder(path)
    return both if divided or known else ()


def _from_path(
    path: Path, split: str | None, kind: str, column: str | None, label_column: str | None
) -> Dataset:
    if path.is_dir():
        for suffix in tables.SUFFIXES:
            table = path / f"{split or 'train'}{suffix}"
            if table.is_file():
                return tables.load(table, None, kind, column, label_column)
        if folders.binary_cifar_name(path):
            return folders.binary_cifar(path, split)
        if prepared.is_folder(path):
            return prepared.load(prepared.file_of(path, split))
        return folders.images(path, split)
    if not path.is_file():
        raise ValueError(
            f"data: expected one of {', '.join(NAMES)}, hf:NAME, or a folder or file; "
            f"found nothing at {path}"
        )
    if path.suffix.lower() in tables.SUFFIXES:
        return tables.load(path, split, kind, column, label_column)
    if path.suffix.lower() in prepared.SUFFIXES:
        return prepared.load(path)
    raise ValueError(
        f"data: expected a file that ends in {', '.join(tables.SUFFIXES + prepared.SUFFIXES)}; "
        f"got {path.name}"
    )
