"""Embeddings from bodies: the npy format and Arrow IPC, without pickle and without inflating."""

from __future__ import annotations

import io
import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkvb._support.optional import require

NPY = ("application/x-npy", "application/octet-stream")
ARROW = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file")
_FILE_MAGIC = b"ARROW1"
_EMBEDDINGS = ("embedding", "embeddings", "x")
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # of MessageHeader in Arrow's Message.fbs


class Columns(NamedTuple):
    """What an Arrow table holds."""

    embeddings: NDArray[Any]
    labels: list[Any] | None
    ids: list[Any] | None


def read_npy(body: bytes) -> NDArray[Any]:
    """Return the array of numbers that a body in npy format holds.

    >>> buffer = io.BytesIO()
    >>> np.save(buffer, np.eye(2))
    >>> read_npy(buffer.getvalue()).shape
    (2, 2)
    """
    try:
        shape, fortran, dtype, start = _header(body[: _header_end(body)])
    except Exception as error:  # numpy raises whatever its parser of headers does
        raise ValueError(
            f"body: expected an array in npy format; got another one ({error}); write it with "
            "numpy.save(file, X)"
        ) from None
    if dtype.kind not in "fiub":
        raise TypeError(f"body: expected real numbers; got dtype {dtype}; convert to float32")
    count, left = math.prod(shape), len(body) - start
    if count * dtype.itemsize != left:
        raise ValueError(
            f"body: expected {count * dtype.itemsize:,} bytes for shape {shape}; got {left:,}; "
            "send the whole array"
        )
    array = np.frombuffer(body, dtype, count, start)
    return array.reshape(shape, order="F" if fortran else "C")


def _header_end(body: bytes) -> int:
    """Where the header of a body in npy format ends; versions 1 and 2 say so after the magic."""
    if body[6:7] == b"\x01":
        return int(10 + struct.unpack_from("<H", body, 8)[0])
    return int(12 + struct.unpack_from("<I", body, 8)[0])


@lru_cache(maxsize=64)  # the same clients send the same shapes
def _header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether columns are contiguous, dtype, and the length of the header."""
    stream = io.BytesIO(header)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} is not known")
    format = np.lib.format
    read = format.read_array_header_1_0 if version == (1, 0) else format.read_array_header_2_0
    return *read(stream), stream.tell()


def read_arrow(body: bytes) -> Columns:
    """Return the columns embedding, label and id of an Arrow IPC stream or file."""
    arrow = require("pyarrow", "serve", "Arrow bodies")
    ipc = require("pyarrow.ipc", "serve", "Arrow bodies")
    try:
        if body.startswith(_FILE_MAGIC):
            # A file is a stream after 8 bytes of magic, and a footer that is not needed.
            body = body[8:]
        for message in ipc.MessageReader.open_stream(body):
            _refuse_compressed(message.metadata.to_pybytes())
        table = ipc.open_stream(body).read_all()
        table.validate(full=True)
    except (arrow.ArrowException, struct.error, IndexError, OSError) as error:
        raise ValueError(
            f"body: expected an Arrow IPC stream; got another one ({' '.join(str(error).split())})"
            "; write it with pyarrow.ipc.new_stream"
        ) from None
    return _columns(arrow, table)


def _columns(arrow: Any, table: Any) -> Columns:
    name = next((one for one in _EMBEDDINGS if one in table.column_names), None)
    if name is None:
        shown = ", ".join(table.column_names[:10])
        raise ValueError(
            f"body: expected a column embedding of lists of numbers; got the columns {shown}"
        )
    column = table.column(name).combine_chunks()
    kinds = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise TypeError(f"body, column {name}: expected lists of numbers; got {column.type}")
    values = column.flatten()
    if column.null_count or values.null_count:
        raise ValueError(f"body, column {name}: expected numbers; got null; drop those rows")
    width, rest = divmod(len(values), max(1, len(column)))
    lengths = set(column.value_lengths().to_pylist()) if len(column) else set()
    if rest or len(lengths) > 1:
        raise ValueError(
            f"body, column {name}: expected lists of one length; got {sorted(lengths)[:5]}"
        )
    numbers = values.to_numpy(zero_copy_only=False).reshape(len(column), width)
    return Columns(numbers, _listed(table, "label"), _listed(table, "id"))


def _listed(table: Any, name: str) -> list[Any] | None:
    return table.column(name).to_pylist() if name in table.column_names else None


def _refuse_compressed(metadata: bytes) -> None:
    """Raise for a batch whose buffers would be inflated: a small body could fill the memory."""
    message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind = message.byte(1)
    header = message.table(2)
    if header is not None and kind == _DICTIONARY_BATCH:
        header = header.table(1)
    if header is not None and kind in (_RECORD_BATCH, _DICTIONARY_BATCH) and header.field(3):
        raise ValueError("body: expected Arrow buffers that are not compressed; got compressed ones"
                         "; write them with compression=None")  # fmt: skip


class _Table:
    """A table of a flatbuffer, by the numbers of its fields."""

    def __init__(self, raw: bytes, start: int) -> None:
        self._raw, self._start = raw, start
        self._fields = start - struct.unpack_from("<i", raw, start)[0]
        self._size = struct.unpack_from("<H", raw, self._fields)[0]

    def field(self, number: int) -> int:
        """Return where a field is; 0 where it is not there."""
        place = 4 + 2 * number
        if place >= self._size:
            return 0
        offset = struct.unpack_from("<H", self._raw, self._fields + place)[0]
        return self._start + offset if offset else 0

    def byte(self, number: int) -> int:
        place = self.field(number)
        return self._raw[place] if place else 0

    def table(self, number: int) -> _Table | None:
        place = self.field(number)
        if not place:
            return None
        return _Table(self._raw, place + struct.unpack_from("<I", self._raw, place)[0])
