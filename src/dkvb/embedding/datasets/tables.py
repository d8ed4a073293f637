"""Tables of texts, or of paths of pictures, with their labels: CSV, TSV and JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.embedding.datasets.dataset import Dataset, image_files, texts

SUFFIXES = (".csv", ".tsv", ".jsonl")

CONTENT = {
    "text": ("text", "sentence", "content", "question", "review", "title"),
    "image": ("image", "path", "file", "filename", "image_path", "file_name"),
}
LABELS = ("label", "class", "target", "category", "intent", "y")

Row = dict[str, Any]


def load(
    path: Path, split: str | None, kind: str, column: str | None, label_column: str | None
) -> Dataset:
    """The rows of a table, those of one split where it has a column of that name."""
    rows = _lines(path) if path.suffix.lower() == ".jsonl" else _cells(path)
    if not rows:
        raise ValueError(f"data {path}: expected rows below a line of column names; found none")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if "split" in columns:
        rows = _of_split(path, rows, split)
    elif split is not None:
        raise ValueError(
            f"split: expected a column named split in {path}; got columns {', '.join(columns)}"
        )
    where = f"data {path}"
    content = find_column(where, columns, column, CONTENT.get(kind, ()), "column")
    if content is None:
        raise ValueError(
            f"{where}: expected a column of {kind}s; got columns {', '.join(columns)}; "
            "name it with --column"
        )
    label = find_column(where, columns, label_column, LABELS, "label-column")
    items = [_text(row, content, where, number) for number, row in enumerate(rows)]
    labels = None
    if label is not None:
        labels = label_array([row.get(label) for row in rows], f"{where}, column {label}")
    name = f"{path.name}{f' {split}' if split else ''}"
    if kind == "text":
        return texts(name, items, labels)
    return image_files(name, [path.parent / item for item in items], labels)


def _cells(path: Path) -> list[Row]:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            reader = csv.DictReader(file, delimiter=separator, strict=True)
            rows: list[Row] = []
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"line {reader.line_num} has not one cell a column")
                rows.append(row)
        except (csv.Error, ValueError) as error:
            raise ValueError(
                f"data {path}: expected a table with a line of column names; it cannot be read "
                f"({error}); write it again with a csv writer"
            ) from error
    return rows


def _lines(path: Path) -> list[Row]:
    rows: list[Row] = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if not isinstance(row, dict):
                    raise ValueError(
                        f"data {path}: expected one JSON object a line; line {number} is none"
                    )
                rows.append(row)
    return rows


def _of_split(path: Path, rows: list[Row], split: str | None) -> list[Row]:
    chosen = [row for row in rows if split is None or row.get("split") == split]
    if not chosen:
        there = sorted({str(row.get("split")) for row in rows})
        raise ValueError(f"split: expected one of {', '.join(there)} in {path}; got {split!r}")
    return chosen


def _text(row: Row, column: str, where: str, number: int) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value:
        raise ValueError(
            f"{where}: expected a text in column {column}; row {number} has {value!r}; drop the row"
        )
    return value


def find_column(
    where: str, columns: Collection[str], wanted: str | None, usual: tuple[str, ...], option: str
) -> str | None:
    """The column asked for, or the first of the usual names that is there.

    >>> find_column("data", ["Text", "y"], None, ("text", "title"), "column")
    'Text'
    """
    if wanted is not None:
        if wanted not in columns:
            raise ValueError(
                f"{option}: expected one of {', '.join(columns)} in {where}; got {wanted!r}"
            )
        return wanted
    by_name = {name.lower(): name for name in columns}
    return next((by_name[name] for name in usual if name in by_name), None)


def label_array(values: list[Any], where: str) -> NDArray[Any]:
    """Labels as integers where all of them are, else as texts.

    >>> label_array(["3", "1"], "y"), label_array(["3", "b"], "y")
    (array([3, 1]), array(['3', 'b'], dtype='<U1'))
    """
    for number, value in enumerate(values):
        if value is None or value == "":
            raise ValueError(f"{where}: expected a label; row {number} has none; drop the row")
        if not isinstance(value, str | int):
            raise ValueError(
                f"{where}: expected texts or whole numbers; row {number} has {value!r}"
            )
    whole = [str(value).removeprefix("-").isdecimal() for value in values]
    kind: type = int if all(whole) else str
    return np.array([kind(value) for value in values])
