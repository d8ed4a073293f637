"""Tables of texts, paths of images or numbers, with their labels: CSV, TSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support.files.regular import read_regular
from dkvb._support.label_text import check_texts
from dkvb.embedding.datasets.dataset import Dataset, image_files, texts

SUFFIXES = (".csv", ".tsv", ".jsonl")

CONTENT = {
    "text": ("text", "sentence", "content", "question", "review", "title"),
    "image": ("image", "path", "file", "filename", "image_path", "file_name"),
}
LABELS = ("label", "class", "target", "category", "intent", "y")

Row = dict[str, Any]
Numbers = tuple[NDArray[np.float32], NDArray[Any] | None]

_LARGEST = 4 << 30  # bytes of a table


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
    text = _decoded(path)
    separator = "\t" if path.suffix.lower() == ".tsv" else _separator(text.partition("\n")[0])
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        columns = next(reader, [])
        rows: list[Row] = []
        for cells in reader:
            if len(cells) != len(columns) and cells:
                raise ValueError(
                    f"line {reader.line_num} has {len(cells)} cells, and the first line names "
                    f"{len(columns)} columns: {', '.join(columns)[:200]}"
                )
            if cells:
                rows.append(dict(zip(columns, cells, strict=True)))
    except (csv.Error, ValueError) as error:
        raise ValueError(
            f"data {path}: expected a table with a line of column names, separated by "
            f"{separator!r}; it cannot be read ({error}); write it again with a csv writer"
        ) from error
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise ValueError(f"data {path}: expected distinct columns; {twice!r} is there twice")
    return rows


def _separator(first: str) -> str:
    """What separates the cells of a CSV file: that which cuts its first line into most cells.

    >>> _separator("text;label"), _separator("text,label"), _separator("text")
    (';', ',', ',')
    """
    start = first[:10_000]  # a field may be too long for the reader, which says so later
    return max(",;\t|", key=lambda one: len(next(csv.reader([start], delimiter=one), [])))


def _decoded(path: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 where its first bytes say so."""
    content = read_regular(path, _LARGEST)
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"data {path}: expected text in UTF-8; byte {error.start} is none; save it as UTF-8"
        ) from error


def _lines(path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(_decoded(path).split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ValueError(
                    f"data {path}: expected one JSON object per line; line {number} is none"
                )
            rows.append(row)
    return rows


def embeddings(path: Path, label_column: str | None = None) -> Numbers | None:
    """Embeddings (n, m), and labels (n,) if a column has them, of a table of numbers alone.

    None for a table with a column of texts; a first line of numbers is a row, not names.
    """
    if path.suffix.lower() not in (".csv", ".tsv"):
        return None
    rows = _cells(path)
    columns = list(rows[0]) if rows else []
    label = find_column(f"data {path}", columns, label_column, LABELS, "label-column")
    width = [name for name in columns if name != label]
    numbers = [[_number(row[name]) for name in width] for row in rows]
    if not width or any(None in row for row in numbers):
        return None
    if all(_number(name) is not None for name in columns):
        numbers.insert(0, [_number(name) for name in columns])
    values = [row[label] for row in rows] if label is not None else None
    labels = None if values is None else label_array(values, f"data {path}, column {label}")
    return np.array(numbers, dtype=np.float32), labels


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


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
    >>> label_array(["007", "7"], "y")
    array(['007', '7'], dtype='<U3')
    """
    check_texts(values, where)
    for number, value in enumerate(values):
        if value is None or value == "":
            raise ValueError(f"{where}: expected a label; row {number} has none; drop the row")
        if not isinstance(value, str | int):
            raise ValueError(
                f"{where}: expected texts or whole numbers; row {number} has {value!r}"
            )
    kind: type = int if all(map(_is_integer, values)) else str
    return np.array([kind(value) for value in values])


def _is_integer(value: str | int) -> bool:
    """Whether a label is the usual text of an integer: "007" is another class than "7"."""
    text = str(value)
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) < 19 and str(int(text)) == text
