"""Embeddings and labels of a table, in batches or as arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support.arrow.columns import Columns, choose, embeddings_of, labels_of
from dkvb._support.arrow.sources import PURPOSE, Source, is_tabular, source_of, unreadable
from dkvb._support.optional import require

Array = NDArray[Any]

BATCH_BYTES = 1 << 23  # of the embeddings of a batch, in float32
MOST_BATCH_ROWS = 1 << 16
MAPPED_FROM = 1 << 27  # bytes of embeddings: more are memory-mapped from a temporary file


class EmbeddingTable:
    """Embeddings (n, m) and labels (n,) in columns; iterated, it gives batches (X, y).

    Parameters
    ----------
    data : object
        Anything with `__arrow_c_stream__`, a pyarrow dataset, a Hugging Face dataset, or a
        `Source`.
    x_column, y_column : str, optional
        Columns of embeddings (lists of numbers) and labels; guessed where there is one. A table
        without lists has its embeddings in its columns of numbers.
    labelled : bool
        Whether labels are needed.
    name : str
        What errors call the data.
    """

    def __init__(
        self,
        data: Any,
        x_column: str | None = None,
        y_column: str | None = None,
        *,
        labelled: bool = False,
        name: str = "X",
    ) -> None:
        self._source = data if isinstance(data, Source) else source_of(data, name)
        self._where, self.schema = name, self._source.schema
        columns = choose(self.schema, x_column, y_column, name, labelled)
        if columns is None:
            raise ValueError(
                f"{name}: expected a column of lists of numbers, or numbers in all columns but "
                f"that of labels; got {_described(self.schema)}; name the column of embeddings"
            )
        if labelled and columns.y is None:
            raise ValueError(
                f"{name}: expected a column of labels, such as label or y; got "
                f"{_described(self.schema)}; name it with y_column"
            )
        self.columns: Columns = columns

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], Array | None]]:
        """Yield embeddings (r, m) float32, checked, and their labels (r,) or None."""
        first, width = 0, None
        for batch in self._batches():
            x = embeddings_of(batch, self.columns, self._where, first)
            if width not in (None, x.shape[1]):
                raise ValueError(
                    f"{self._where}: expected embeddings of width {width}, as before; row {first} "
                    f"has {x.shape[1]}; embed it with the same encoder"
                )
            width = x.shape[1]
            yield x, labels_of(batch, self.columns, self._where, first)
            first += len(x)
        if width is None:
            raise ValueError(f"{self._where}: expected at least one row; got an empty table")
        require("pyarrow", "arrow", PURPOSE).default_memory_pool().release_unused()

    def arrays(self) -> tuple[Array, Array | None]:
        """Return all embeddings (n, m) and labels (n,).

        Large embeddings are memory-mapped from a temporary file, which goes with the array: they
        are never in memory as a whole.
        """
        parts: list[Array] = []
        labels: list[Array] = []
        spool: Any = None
        n_bytes = 0
        for x, y in self:
            n_bytes += x.nbytes
            if spool is None and n_bytes > MAPPED_FROM:
                spool = tempfile.TemporaryFile(prefix="dkvb-")  # noqa: SIM115  the map keeps it
                while parts:
                    spool.write(parts.pop(0).data)
            if spool is None:
                parts.append(x)
            else:
                spool.write(x.data)
            width = x.shape[1]
            if y is not None:
                labels.append(y)
        joined = np.concatenate(labels) if labels else None
        if spool is None:
            return np.concatenate(parts) if len(parts) > 1 else parts[0], joined
        spool.flush()
        shape = (n_bytes // (4 * width), width)
        with spool:
            return np.memmap(spool, np.float32, "r", shape=shape), joined

    def batch_rows(self) -> int:
        """Return how many rows a batch has, as far as the width is known from the schema."""
        width = len(self.columns.x)
        if self.columns.is_list:
            width = getattr(self.schema.field(self.columns.x[0]).type, "list_size", 1024)
        return max(1, min(MOST_BATCH_ROWS, BATCH_BYTES // (4 * max(1, width))))

    def _batches(self) -> Iterator[Any]:
        """Record batches of the columns, cut and joined to `batch_rows` rows."""
        arrow = require("pyarrow", "arrow", PURPOSE)
        most = self.batch_rows()
        waiting: list[Any] = []
        n = 0
        for batch in self._read(arrow, most):
            start = 0
            while start < len(batch):
                piece = batch.slice(start, most - n)
                waiting.append(piece)
                start, n = start + len(piece), n + len(piece)
                if n == most:
                    yield _joined(arrow, waiting)
                    waiting, n = [], 0
        if waiting:
            yield _joined(arrow, waiting)

    def _read(self, arrow: Any, rows: int) -> Iterator[Any]:
        try:
            yield from self._source.batches(self.columns.names, rows)
        except (arrow.ArrowException, OSError) as error:  # damaged, or of an unknown kind
            raise unreadable(self._where, error) from error


def _joined(arrow: Any, batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return arrow.concat_batches(batches)


def _described(schema: Any) -> str:
    columns = [f"{field.name} ({field.type})" for field in schema]
    return ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")


def with_labels(X: Any, y: Any) -> tuple[Any, Any]:
    """Return X and y, as arrays where X is a table with a column of lists.

    `y` may be the name of a column of X, or None, and then the column is guessed. Of a table of
    numbers the labels are split off, and the other columns keep their names.
    """
    if not (is_tabular(X) or (hasattr(X, "__arrow_c_stream__") and (y is None or _is_name(y)))):
        return X, y
    source = source_of(X)
    y_column = y if _is_name(y) else None
    columns = choose(source.schema, None, y_column, "X", labelled=y is None)
    if columns is not None and columns.is_list:
        needed = y is None or y_column is not None
        table = EmbeddingTable(source, columns.x[0], y_column, labelled=needed)
        found, labels = table.arrays()
        return found, labels if needed else y
    if columns is None or columns.y is None or (y is not None and y_column is None):
        return X, y
    arrow = require("pyarrow", "arrow", PURPOSE)
    whole = arrow.Table.from_batches(source.batches(columns.names, MOST_BATCH_ROWS))
    features = X[list(columns.x)] if hasattr(X, "iloc") else whole.select(columns.x)
    batches = whole.select([columns.y]).combine_chunks().to_batches()
    return features, labels_of(batches[0], columns, "X", 0) if batches else None


def without_labels(X: Any) -> Any:
    """Return X, as an array where it is a table with a column of lists."""
    if not is_tabular(X):
        return X
    source = source_of(X)
    columns = choose(source.schema, None, None, "X", labelled=False)
    if columns is None or not columns.is_list:
        return X
    return EmbeddingTable(source, columns.x[0]).arrays()[0]


def _is_name(y: Any) -> bool:
    return isinstance(y, str)
