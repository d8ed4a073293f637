"""The layout of a file: safetensors, with what the tensors mean in the header.

Eight bytes hold the length of the header, which is JSON and names each tensor's dtype, shape and
place; the tensors follow, one after another. It is written and read here, in a few lines, so that
every byte goes through `atomic`, tensors are never copied, and an error can say what is wrong.

The checksum of a tensor is CRC-32: 2.5 GB/s with the zlib of every Python, and made to see what
disks and networks do. The header, which holds these, has a SHA-256. Against people who change a
file on purpose no checksum that stands in the file itself can help.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.files.atomic import Bytes, replace_file
from dkvb._support.files.errors import FileError
from dkvb._support.files.state import State

VERSION = 2  # of the format: what is read by this version of dkvb, and what is written
MAPPED_BYTES = 1 << 20  # tensors of this size and more stay in the file until they are needed

_ALIGNMENT = 64
_DTYPES = {
    "BOOL": torch.bool,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "F32": torch.float32,
    "I64": torch.int64,
    "F64": torch.float64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Array = NDArray[Any]


@dataclass(frozen=True)
class Contents:
    """What a file holds: the kind of thing, its state, and a digest that tells files apart."""

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
        raise ValueError(f"path: expected a file in a folder that is there; got {path}")
    digest, chunks = encode(kind, state)
    replace_file(path, chunks)
    return digest


def read(path: str | Path, *kinds: str) -> Contents:
    """The contents of the file at `path`, if it is of one of the kinds.

    Large tensors are mapped, not copied: changes to them stay in memory.
    """
    path = Path(path)
    try:
        raw = _mapped(path)
    except FileNotFoundError:
        raise FileError("missing", f"{path}: expected a file; there is none") from None
    contents = decode(raw, path)
    if kinds and contents.kind not in kinds:
        raise FileError(
            "foreign", f"{path}: expected a file of {' or '.join(kinds)}; got {contents.kind}"
        )
    return contents


def encode(kind: str, state: State) -> tuple[str, Iterator[Bytes]]:
    """A digest, and the bytes of a file, tensors uncopied."""
    # The widest first, so that every tensor lies at a multiple of its width.
    named = sorted(
        ((name, t.detach().cpu().contiguous()) for name, t in state.tensors.items()),
        key=lambda item: (-item[1].element_size(), item[0]),
    )
    entries: dict[str, Any] = {}
    checksums: dict[str, int] = {}
    end = 0
    for name, tensor in named:
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        checksums[name] = _checksum(name, entries[name], _bytes_of(tensor))
    meaning = _json(
        {"version": VERSION, "kind": kind, "facts": state.facts, "checksums": checksums}
    )
    digest = _digest(meaning)
    header = _json({"__metadata__": {"dkvb": meaning, "sha256": digest}, **entries}).encode()
    header += b" " * (-(8 + len(header)) % _ALIGNMENT)
    opening = struct.pack("<Q", len(header)) + header
    return digest, iter([opening, *(_bytes_of(tensor) for _, tensor in named)])


def decode(raw: Array, path: Path | None = None) -> Contents:
    """The contents of bytes (n,) uint8; every statement in them is checked before it is used."""
    where = str(path or "file")
    header, body = _opened(raw, where)
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("dkvb"), str):
        raise FileError(
            "foreign", f"{where}: expected a file written by dkvb; got another safetensors file"
        )
    meaning: str = metadata["dkvb"]
    stated = _parsed(meaning)
    version = stated.get("version") if isinstance(stated, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise FileError(
            "newer",
            f"{where}: expected format {VERSION} or older; got format {version}, "
            "which a newer dkvb wrote; update dkvb to read it",
        )
    digest = _digest(meaning)
    whole = (
        isinstance(stated, dict)
        and digest == metadata.get("sha256")
        and type(version) is int
        and version >= 1
        and isinstance(stated.get("kind"), str)
        and isinstance(stated.get("facts"), dict)
        and isinstance(stated.get("checksums"), dict)
    )
    if not whole:
        raise _damaged(where, "its header was changed")
    if stated["checksums"].keys() != header.keys():
        raise _damaged(where, "its list of tensors was changed")
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        own = body[start:end]
        if _checksum(name, entry, _buffer(own)) != stated["checksums"][name]:
            raise _damaged(where, f"tensor {name!r} was changed")
        tensors[name] = _tensor(own, _DTYPES[entry["dtype"]], entry["shape"])
    state = State(tensors, stated["facts"], path)
    return Contents(stated["kind"], int(stated["version"]), state, digest)


def _opened(raw: Array, where: str) -> tuple[dict[str, Any], Array]:
    """The header, its tensors' entries checked against the bytes there are, and these bytes."""
    foreign = FileError(
        "foreign", f"{where}: expected a file written by dkvb; this is something else"
    )
    if len(raw) < 9:
        raise FileError("truncated", f"{where}: the file is cut short: it has {len(raw)} bytes")
    (length,) = struct.unpack("<Q", raw[:8].tobytes())
    if raw[8] != ord("{") or length >= 1 << 40:
        raise foreign
    if 8 + length > len(raw):
        raise FileError("truncated", f"{where}: the file is cut short: its header does not end")
    header = _parsed(raw[8 : 8 + length].tobytes())
    if not isinstance(header, dict):
        raise _damaged(where, "its header cannot be read")
    body = raw[8 + length :]
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if not _is_entry(entry):
            raise _damaged(where, f"the header's entry {name!r:.40} is not that of a tensor")
        if entry["data_offsets"][0] != end:
            raise _damaged(where, f"tensor {name!r:.40} does not begin where the last one ends")
        end = entry["data_offsets"][1]
    if end > len(body):
        raise FileError(
            "truncated", f"{where}: the file is cut short: {end - len(body)} bytes are missing"
        )
    if end < len(body):
        raise _damaged(where, f"{len(body) - end} bytes too many")
    return header, body


def _is_entry(entry: Any) -> bool:
    """Whether a header's entry describes a tensor that fits its place."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return False
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    return (
        isinstance(dtype, str)
        and dtype in _DTYPES
        and isinstance(shape, list)
        and len(shape) <= 8
        and all(type(length) is int and length >= 0 for length in shape)
        and math.prod(max(length, 1) for length in shape) < 1 << 48
        and isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(offset) is int and offset >= 0 for offset in offsets)
        and offsets[1] - offsets[0] == math.prod(shape) * _DTYPES[dtype].itemsize
    )


def _mapped(path: Path) -> Array:
    """The bytes of a regular file (n,), mapped; a pipe or device would make us wait for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise FileError("foreign", f"{path}: expected a file; got a folder or a device")
    with path.open("rb") as file:
        if os.name == "nt":  # a mapped file could not be replaced
            return np.frombuffer(bytearray(file.read()), np.uint8)
        if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
            return np.zeros(0, np.uint8)
        return np.asarray(np.memmap(file, np.uint8, mode="c"))


def _checksum(name: str, entry: dict[str, Any], content: Bytes) -> int:
    described = f"{name} {entry['dtype']} {entry['shape']}"
    return zlib.crc32(content, zlib.crc32(described.encode(errors="surrogatepass")))


def _digest(meaning: str) -> str:
    """Tells files apart, since the checksums of all tensors are part of what a header means."""
    return hashlib.sha256(meaning.encode(errors="surrogatepass")).hexdigest()


def _bytes_of(tensor: Tensor) -> memoryview:
    if not tensor.numel():
        return memoryview(b"")
    return _buffer(tensor.view(-1).view(torch.uint8).numpy())


def _tensor(content: Array, dtype: torch.dtype, shape: list[int]) -> Tensor:
    """Bytes as a tensor, in the file's own memory where there are many."""
    if not len(content):
        return torch.empty(shape, dtype=dtype)
    own = content if len(content) >= MAPPED_BYTES else content.copy()
    return torch.from_numpy(own).view(dtype).view(shape)


def _buffer(array: Array) -> memoryview:
    return memoryview(array)  # type: ignore[arg-type]  # NumPy's hints know no buffers yet


def _parsed(text: str | bytes) -> Any:
    """JSON, or None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _damaged(where: str, what: str) -> FileError:
    return FileError(
        "damaged", f"{where}: the file is damaged: {what} after it was written; use a copy"
    )
