"""Objects that hand out Arrow record batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dkvb._support.optional import require

PURPOSE = "Arrow data"
# Of a pyarrow dataset: one batch ahead. The default, 16 batches of 131,072 rows of four files,
# would be most of a large dataset.
_SCAN = {"batch_readahead": 1, "fragment_readahead": 1}


@dataclass(frozen=True)
class Source:
    """Record batches with one schema, read as often as `batches` is called."""

    schema: Any  # pyarrow.Schema
    batches: Callable[[list[str], int], Iterator[Any]]  # of these columns, about so many rows each
    n_rows: int | None = None  # None: not known before they are read


def is_tabular(X: Any) -> bool:
    """Return whether X hands out Arrow columns and is not a frame of numbers alone.

    Frames of numbers are left to scikit-learn's own validation, which keeps feature names.
    """
    if _is_dataset(X) or _is_hugging_face(X):
        return True
    if not hasattr(X, "__arrow_c_stream__"):
        return False
    dtypes: Any = getattr(X, "dtypes", None)  # of a pandas frame
    if hasattr(dtypes, "tolist"):
        return not all(getattr(one, "kind", "O") in "fiub" for one in dtypes.tolist())
    return True


def source_of(X: Any, name: str = "X") -> Source:
    """Return the record batches of an object that `is_tabular` is true for."""
    if _is_dataset(X):
        return Source(X.schema, lambda columns, rows: _scanned(X, columns, rows))
    if _is_hugging_face(X):
        return Source(X.features.arrow_schema, lambda columns, rows: _iterated(X, columns, rows),
                      len(X))  # fmt: skip
    arrow = require("pyarrow", "arrow", PURPOSE)
    if isinstance(X, arrow.RecordBatchReader):
        return Source(X.schema, _Once(X, name).batches)
    try:
        schema = arrow.RecordBatchReader.from_stream(X).schema
    except arrow.ArrowInvalid:  # an array, not a table: a Series or a ChunkedArray
        column = arrow.chunked_array(X)
        return source_of(arrow.table({"x": column}), name)

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        for batch in arrow.RecordBatchReader.from_stream(X):
            yield batch.select(columns)

    length = len(X) if hasattr(X, "__len__") else None
    return Source(schema, batches, length)


def unreadable(where: str, error: BaseException) -> ValueError:
    """Return the error for data that a reader cannot read."""
    return ValueError(
        f"{where}: expected Parquet, Arrow IPC or another table of columns; it cannot be read "
        f"({' '.join(str(error).split())[:200]}); write it again"
    )


def _is_dataset(X: Any) -> bool:
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(X, module.Dataset)


def _is_hugging_face(X: Any) -> bool:
    module = sys.modules.get("datasets")
    return module is not None and isinstance(X, module.Dataset)


def _scanned(dataset: Any, columns: list[str], rows: int) -> Iterator[Any]:
    files = parquet_files(dataset)
    if files is not None:
        for path in files:
            yield from parquet_batches(path, columns, rows)
        return
    options = {} if type(dataset).__module__.startswith("lance") else _SCAN
    yield from dataset.to_batches(columns=columns, batch_size=rows, **options)


def parquet_files(dataset: Any) -> list[str] | None:
    """Return the local files of a pyarrow dataset if these hold all its columns; else None.

    A scan decodes whole row groups, a million rows each unless told otherwise; a file can be read
    in smaller batches.
    """
    module = require("pyarrow.dataset", "arrow", PURPOSE)
    filesystems = require("pyarrow.fs", "arrow", PURPOSE)
    if (
        type(dataset) is not module.FileSystemDataset
        or not isinstance(dataset.format, module.ParquetFileFormat)
        or not isinstance(dataset.filesystem, filesystems.LocalFileSystem)
        or dataset._scan_options
    ):
        return None
    names = set(dataset.schema.names)
    fragments = list(dataset.get_fragments())
    if not all(names == set(one.physical_schema.names) for one in fragments):
        return None  # columns come from the names of folders, or are missing
    return list(dataset.files)


def parquet_batches(path: Any, columns: list[str], rows: int) -> Iterator[Any]:
    """Yield record batches of so many rows, decoding no more of a row group than these."""
    parquet = require("pyarrow.parquet", "arrow", PURPOSE)
    with parquet.ParquetFile(path, memory_map=True, pre_buffer=False, buffer_size=1 << 20) as file:
        yield from file.iter_batches(batch_size=rows, columns=columns)


def _iterated(dataset: Any, columns: list[str], rows: int) -> Iterator[Any]:
    for table in dataset.select_columns(columns).with_format("arrow").iter(batch_size=rows):
        yield from table.to_batches()


class _Once:
    """A stream that can be read once."""

    def __init__(self, reader: Any, name: str) -> None:
        self._reader, self._name = reader, name

    def batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        if self._reader is None:
            raise ValueError(
                f"{self._name}: expected Arrow data that can be read more than once; got a stream "
                "that has been read; pass a table, a dataset or the name of a file"
            )
        reader, self._reader = self._reader, None
        for batch in reader:
            yield batch.select(columns)
