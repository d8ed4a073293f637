"""Which columns of a table are embeddings and labels, and their values as NumPy arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support.label_text import check_text_array
from dkvb._support.optional import require

EMBEDDINGS = ("x", "embedding", "embeddings", "vector", "features")  # names preferred among several
LABELS = ("label", "class", "target", "category", "intent", "y", "labels", "fine_label")
_SHOWN = 20  # columns that an error lists


@dataclass(frozen=True)
class Columns:
    """The columns to read: one of lists, or several of numbers; and one of labels, if any."""

    x: tuple[str, ...]
    y: str | None
    is_list: bool
    class_names: tuple[str, ...] | None = None  # of labels that are stored as their indices

    @property
    def names(self) -> list[str]:
        return [*self.x, *([] if self.y is None else [self.y])]


def choose(
    schema: Any, x_column: str | None, y_column: str | None, where: str, labelled: bool
) -> Columns | None:
    """Return the columns of embeddings and labels; None where no column can be embeddings.

    `labelled`: whether labels are needed, so that the only other column is taken for them.
    """
    for option, name in (("x_column", x_column), ("y_column", y_column)):
        if name is not None and name not in schema.names:
            raise ValueError(
                f"{option}: expected one of the columns {_listed(schema.names)} of {where}; "
                f"got {name!r}"
            )
    lists = [field.name for field in schema if _is_list_of_numbers(field.type)]
    if x_column is not None and x_column not in lists:
        raise TypeError(
            f"x_column: expected a column of lists of numbers in {where}; got {x_column!r}, a "
            f"column of {schema.field(x_column).type}; name another, or store each embedding as "
            "a list"
        )
    if x_column is None and lists:
        x_column = _only(lists, EMBEDDINGS, "x_column", "of lists", where)
    rest = [name for name in schema.names if name not in (x_column, "__index_level_0__")]
    y = y_column or _label_column(schema, rest, where, labelled and x_column is not None)
    class_names = None if y is None else _class_names(schema, y)
    if x_column is not None:
        return Columns((x_column,), y, True, class_names)
    numbers = tuple(name for name in rest if name != y)
    if not numbers or not all(_is_number(schema.field(name).type) for name in numbers):
        return None
    return Columns(numbers, y, False, class_names)


def _label_column(schema: Any, names: Sequence[str], where: str, labelled: bool) -> str | None:
    usual = [name for name in names if name.lower() in LABELS]
    if usual:
        return usual[0] if len(usual) == 1 else _only(usual, (), "y_column", "of labels", where)
    return names[0] if labelled and len(names) == 1 else None


def _only(
    names: Sequence[str], preferred: Sequence[str], option: str, kind: str, where: str
) -> str:
    if len(names) == 1:
        return names[0]
    by_name = {name.lower(): name for name in names}
    for name in preferred:
        if name in by_name:
            return by_name[name]
    raise ValueError(
        f"{option}: expected the name of one column {kind} in {where}, which has several: "
        f"{_listed(names)}; got none"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return f"{shown}, … ({len(names)})" if len(names) > _SHOWN else shown


def _is_number(type_: Any) -> bool:
    types = require("pyarrow.types", "arrow", "Arrow data")
    return bool(types.is_integer(type_) or types.is_floating(type_))


def _is_list_of_numbers(type_: Any) -> bool:
    types = require("pyarrow.types", "arrow", "Arrow data")
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(type_) for test in lists) and _is_number(type_.value_type)


def _class_names(schema: Any, column: str) -> tuple[str, ...] | None:
    """The names behind a ClassLabel, which Hugging Face writes beside the schema."""
    content = (schema.metadata or {}).get(b"huggingface", b"")
    try:
        names = json.loads(content)["info"]["features"][column].get("names")
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


# ----------------------------------------------------------------------------------------- values
def embeddings_of(batch: Any, columns: Columns, where: str, first_row: int) -> NDArray[np.float32]:
    """Return the embeddings (n, m) of a record batch, all finite."""
    arrays = [batch.column(name) for name in columns.x]
    for name, array in zip(columns.x, arrays, strict=True):
        if array.null_count:
            bad = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(
                f"{where}, column {name}: expected an embedding in every row; row "
                f"{first_row + bad} has none; drop it"
            )
    if columns.is_list:
        values = _lists(arrays[0], f"{where}, column {columns.x[0]}", first_row)
    else:
        values = np.stack([np.asarray(array) for array in arrays], axis=1)
    with np.errstate(over="ignore"):  # the check below says better what is wrong
        x: NDArray[np.float32] = np.ascontiguousarray(values, dtype=np.float32)
    finite = np.isfinite(x).all(axis=1)
    if not finite.all():
        infinite = np.flatnonzero(~finite)
        raise ValueError(
            f"{where}: expected finite float32 numbers; got NaN or infinity in {len(infinite)} "
            f"row(s), the first is row {first_row + int(infinite[0])}; drop or repair those rows"
        )
    return x


def _lists(array: Any, where: str, first_row: int) -> NDArray[Any]:
    """The values (n, m) of an array of lists of one length."""
    types = require("pyarrow.types", "arrow", "Arrow data")
    n = len(array)
    if types.is_fixed_size_list(array.type):
        width = array.type.list_size
    else:
        lengths = np.asarray(array.value_lengths())
        width = int(lengths[0]) if n else 0
        if (lengths != width).any():
            bad = int(np.flatnonzero(lengths != width)[0])
            raise ValueError(
                f"{where}: expected lists of one length, {width} as in row {first_row}; row "
                f"{first_row + bad} has {lengths[bad]}; embed it with the same encoder"
            )
    if not width:
        raise ValueError(f"{where}: expected at least one number in a list; got empty lists")
    values = array.flatten()
    if values.null_count:
        missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        raise ValueError(
            f"{where}: expected numbers in every list; row {first_row + int(missing[0]) // width} "
            "has none in a place; drop or repair it"
        )
    return np.asarray(values).reshape(n, width)


def labels_of(batch: Any, columns: Columns, where: str, first_row: int) -> NDArray[Any] | None:
    """Return the labels (n,) of a record batch: int64, strings or booleans; None without any."""
    if columns.y is None:
        return None
    arrow = require("pyarrow", "arrow", "Arrow data")
    array, types = batch.column(columns.y), arrow.types
    where = f"{where}, column {columns.y}"
    if types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.null_count:
        bad = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(f"{where}: expected a label; row {first_row + bad} has none; drop the row")
    if types.is_integer(array.type):
        return _named(_integers(array, arrow, where), columns.class_names)
    if types.is_boolean(array.type):
        return np.asarray(array)
    if not any(test(array.type) for test in _text_types(types)):
        raise TypeError(
            f"{where}: expected labels that are integers, strings or booleans; got {array.type}; "
            "convert the column, or name another"
        )
    texts: NDArray[Any] = (
        np.array(array.to_pylist(), dtype=np.str_) if len(array) else np.empty(0, "<U1")
    )
    check_text_array(texts, where)
    return texts


def _text_types(types: Any) -> list[Any]:
    return [types.is_string, types.is_large_string, types.is_string_view]


def _integers(array: Any, arrow: Any, where: str) -> NDArray[np.int64]:
    try:
        return np.asarray(array.cast(arrow.int64()))
    except arrow.ArrowInvalid as error:
        raise ValueError(
            f"{where}: expected labels below 2**63; got a larger one; renumber the labels"
        ) from error


def _named(indices: NDArray[np.int64], names: tuple[str, ...] | None) -> NDArray[Any]:
    """Labels by their names, where all have one."""
    if names is None or not len(indices):
        return indices if names is None else np.empty(0, "<U1")
    if indices.min() < 0 or indices.max() >= len(names):
        return indices
    return np.array(names)[indices]
