"""Hugging Face data sets, by name or from a folder that `save_to_disk` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support.optional import require
from dkvb.embedding.datasets.dataset import Dataset, decode_image
from dkvb.embedding.datasets.tables import CONTENT, LABELS, find_column, label_array


def load(
    where: str, split: str | None, kind: str, column: str | None, label_column: str | None
) -> Dataset:
    """The data set NAME, NAME:CONFIG or FOLDER."""
    library = require("datasets", "huggingface", "data hf")
    found = _fetch(library, where, split or "train")
    columns = list(found.features)
    content = find_column(where, columns, column, CONTENT.get(kind, ()), "column")
    if content is None:
        raise ValueError(
            f"data hf:{where}: expected a column of {kind}s; got {', '.join(columns)}; "
            "name it with --column"
        )
    label = find_column(where, columns, label_column, (*LABELS, "fine_label"), "label-column")
    labels = None if label is None else _labels(found, label, where)
    if kind == "image":
        found = found.cast_column(content, library.Image(decode=False))
    return Dataset(
        f"hf:{where} {split or 'train'}",
        kind,
        len(found),
        lambda i: _bytes(found[i][content]),
        decode_image if kind == "image" else bytes.decode,
        lambda i: f"row {i}",
        labels,
    )


def _fetch(library: Any, where: str, split: str) -> Any:
    try:
        if Path(where).is_dir() and any(Path(where).glob("*state.json")):
            return library.load_from_disk(where)
        if Path(where).is_dir() and (Path(where) / "dataset_dict.json").is_file():
            return library.load_from_disk(where)[split]
        name, _, config = where.partition(":")
        return library.load_dataset(name, config or None, split=split)
    except Exception as error:  # the library has many kinds, its own and its server's
        raise ValueError(
            f"data hf:{where}: expected a data set with the split {split}; it cannot be loaded "
            f"({' '.join(str(error).split())[:200]}); check name, split and network"
        ) from error


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return bytes(value["bytes"]) if value["bytes"] else Path(value["path"]).read_bytes()


def _labels(found: Any, column: str, where: str) -> NDArray[Any]:
    names = getattr(found.features[column], "names", None)
    values = list(found[column])
    if names and min(values) >= 0:
        named: NDArray[Any] = np.array(names)[np.array(values)]
        return named
    return label_array(values, f"data hf:{where}, column {column}")
