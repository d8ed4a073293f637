"""The layout of a file: safetensors, with what the tensors mean in the header's metadata.

The library `safetensors` writes and reads the layout. Here stand what it does not do: checksums,
the version of the format, and errors that say what is wrong with a file.

The checksum of a tensor is CRC-32: 2.5 GB/s with the zlib of every Python, and made to see what
disks and networks do. The metadata, which holds these, has a SHA-256. Against people who change a
file on purpose no checksum that stands in the file itself can help.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save as safetensors_bytes

from dkvb._support.files.atomic import PRIVATE, Bytes, replace_file
from dkvb._support.files.errors import FileError
from dkvb._support.files.metadata import (
    VERSION,
    Metadata,
    checksum,
    damaged,
    digest_of,
    read_metadata,
)
from dkvb._support.files.state import State

MAPPED_BYTES = 64 << 20  # size of a file from which its tensors stay in the file until needed
METADATA_BYTES = 90_000_000  # of facts and checksums; safetensors reads headers below 100 MB

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Contents:
    """What a file holds: the kind of object, its state, and a digest that tells files apart."""

    kind: str
    version: int
    state: State
    digest: str


def write(path: str | Path, kind: str, state: State) -> str:
    """Replace the file at `path`; returns its digest."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"path: expected the name of a file; got the folder {path}")
    if not path.parent.is_dir():
        raise ValueError(f"path: expected a file in an existing folder; got {path}")
    digest, chunks = encode(kind, state)
    replace_file(path, chunks, PRIVATE)
    return digest


def read(path: str | Path, *kinds: str) -> Contents:
    """The contents of the file at `path`, if it is of one of the kinds.

    A file below `MAPPED_BYTES` is copied into memory. A larger one is mapped: changes to its
    tensors stay in memory, and the file must not be cut while they are in use.
    """
    path = Path(path)
    try:
        contents = _read(path)
    except FileNotFoundError:
        raise FileError("missing", f"{path}: expected a file; there is none") from None
    if kinds and contents.kind not in kinds:
        raise FileError(
            "foreign", f"{path}: expected a file of {' or '.join(kinds)}; got {contents.kind}"
        )
    return contents


def encode(kind: str, state: State) -> tuple[str, Iterator[Bytes]]:
    """A digest, and the bytes of a file."""
    # In rows; unlike this, np.ascontiguousarray would give an array without axes one.
    arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
    checksums = {name: _checksum(name, array) for name, array in sorted(arrays.items())}
    meaning = json.dumps(
        {"version": VERSION, "kind": kind, "facts": state.facts, "checksums": checksums},
        allow_nan=False,
        separators=(",", ":"),
    )
    if len(meaning) > METADATA_BYTES:
        raise ValueError(
            f"{kind}: expected at most {METADATA_BYTES:,} bytes of labels, settings and history in "
            f"a file; got {len(meaning):,}; use shorter labels, or fewer classes"
        )
    digest = digest_of(meaning)
    # One entry, since the library does not keep the order of several.
    metadata = {"dkvb": f'{meaning[:-1]},"sha256":"{digest}"}}'}
    return digest, iter([safetensors_bytes(arrays, metadata)])


def decode(content: Any, path: Path | None = None) -> Contents:
    """The contents of bytes in memory; every statement in them is checked before it is used."""
    content, where = bytes(content), str(path or "file")
    metadata = read_metadata(io.BytesIO(content), len(content), where)
    try:
        arrays = {
            name: _array(entry["data"], entry) for name, entry in safetensors.deserialize(content)
        }
    except (SafetensorError, KeyError) as error:
        raise damaged(where, f"its list of tensors cannot be read ({error}),") from error
    return _checked(metadata, arrays, where, path)


def _read(path: Path) -> Contents:
    # A pipe or a device would make us wait for ever: nothing but a regular file is opened.
    if not stat.S_ISREG(path.stat().st_mode):
        raise FileError("foreign", f"{path}: expected a file; got a folder or a device")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < MAPPED_BYTES or os.name == "nt":  # where a mapped file could not be replaced
            return decode(file.read(), path)
        metadata = read_metadata(file, size, str(path))
        mapped = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))
    try:
        with safetensors.safe_open(path, "np"):  # checks that shapes and places fit together
            arrays = {
                name: _array(_place(mapped, metadata.start, entry), entry)
                for name, entry in metadata.tensors.items()
            }
    except (SafetensorError, KeyError) as error:
        raise damaged(str(path), f"its list of tensors cannot be read ({error}),") from error
    return _checked(metadata, arrays, str(path), path)


def _place(mapped: memoryview, start: int, entry: Mapping[str, Any]) -> memoryview:
    first, last = entry["data_offsets"]
    return mapped[start + first : start + last]


def _checked(
    metadata: Metadata, arrays: dict[str, NDArray[Any]], where: str, path: Path | None
) -> Contents:
    """The contents, if checksums are right."""
    if metadata.checksums.keys() != arrays.keys():
        raise damaged(where, "its list of tensors was changed")
    for name, array in arrays.items():
        if _checksum(name, array) != metadata.checksums[name]:
            raise damaged(where, f"tensor {name!r:.40} was changed")
    state = State(arrays, metadata.facts, path)
    return Contents(metadata.kind, metadata.version, state, metadata.digest)


def _array(content: Any, entry: Mapping[str, Any]) -> NDArray[Any]:
    """An array in the memory of `content`."""
    dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
    if not len(content):
        return np.empty(shape, dtype)
    return np.frombuffer(content, dtype).reshape(shape)


def _checksum(name: str, array: NDArray[Any]) -> int:
    content: Any = array.reshape(-1).view(np.uint8) if array.size else b""
    return checksum(name, _NAMES[array.dtype], list(array.shape), content)
