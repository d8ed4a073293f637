"""What a file says of itself in its header: the kind, the facts, and the checksums of its tensors.

What is asked of a header alone is answered at once: no tensor is read for it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

from dkvb._support.files.errors import FileError

VERSION = 1  # of the format


class Metadata(NamedTuple):
    """What the header of a file of dkvb says, checked against its own digest."""

    kind: str
    version: int
    facts: dict[str, Any]
    checksums: dict[str, Any]  # by name of tensor
    digest: str
    tensors: dict[str, Any]  # entries of the header: dtype, shape and offsets by name
    start: int  # of the tensors, in bytes


def read_metadata(file: IO[bytes], size: int, where: str) -> Metadata:
    """Return what the header says; a file that is cut short, foreign or damaged is an error."""
    metadata, tensors, start = _header_entries(file, size, where)
    stated = _parsed(metadata["dkvb"])
    version = stated.get("version") if isinstance(stated, dict) else None
    if type(version) is int and version > VERSION:
        raise FileError(
            "newer",
            f"{where}: expected format {VERSION}; got format {version}, "
            "which a newer dkvb wrote; update dkvb to read it",
        )
    meaning, digest = _meaning_and_digest(metadata["dkvb"])
    valid = (
        isinstance(stated, dict)
        and digest == digest_of(meaning)
        and version == VERSION
        and isinstance(stated.get("kind"), str)
        and isinstance(stated.get("facts"), dict)
        and isinstance(stated.get("checksums"), dict)
    )
    if not valid:
        raise damaged(where, "its header was changed")
    return Metadata(
        stated["kind"],
        stated["version"],
        stated["facts"],
        stated["checksums"],
        digest,
        tensors,
        start,
    )


def checksum(name: str, dtype: str, shape: list[int], content: Any) -> int:
    """Return the checksum of a tensor, by its name, its dtype in the header, and its bytes."""
    return zlib.crc32(content, zlib.crc32(f"{name} {dtype} {shape}".encode(errors="surrogatepass")))


def check_tensors(file: IO[bytes], metadata: Metadata, where: str) -> None:
    """Raise where a tensor is not what its checksum says; one is in memory at a time."""
    if metadata.checksums.keys() != metadata.tensors.keys():
        raise damaged(where, "its list of tensors was changed")
    for name, entry in metadata.tensors.items():
        try:
            first, last = entry["data_offsets"]
            file.seek(metadata.start + first)
            content = file.read(max(0, last - first))
            found = checksum(name, entry["dtype"], entry["shape"], content)
        except (TypeError, KeyError, ValueError, OverflowError, OSError) as error:
            raise damaged(where, f"its list of tensors cannot be read ({error}),") from error
        if found != metadata.checksums[name]:
            raise damaged(where, f"tensor {name!r:.40} was changed")


def _header_entries(
    file: IO[bytes], size: int, where: str
) -> tuple[Mapping[str, Any], dict[str, Any], int]:
    """The entries of metadata in the header, those of tensors, and where tensors begin."""
    opening = file.read(9)
    if len(opening) < 9:
        raise FileError("truncated", f"{where}: the file is cut short: it has {size} bytes")
    length = int.from_bytes(opening[:8], "little")
    if opening[8] != ord("{") or length >= 1 << 40:
        raise FileError(
            "foreign", f"{where}: expected a file written by dkvb; this is something else"
        )
    if 8 + length > size:
        raise FileError("truncated", f"{where}: the file is cut short: its header does not end")
    header = _parsed(opening[8:] + file.read(length - 1))
    if not isinstance(header, dict):
        raise damaged(where, "its header was changed")
    metadata = header.pop("__metadata__", None)
    missing = 8 + length + _end(header) - size
    if missing > 0:
        raise FileError("truncated", f"{where}: the file is cut short: {missing} bytes are missing")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("dkvb"), str):
        raise FileError(
            "foreign", f"{where}: expected a file written by dkvb; got another safetensors file"
        )
    return metadata, header, 8 + length


def _end(entries: Mapping[str, Any]) -> int:
    """How many bytes the tensors take by their entries in the header; 0 where these are spoilt."""
    try:
        return max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        return 0  # the library says what is wrong


def _meaning_and_digest(text: str) -> tuple[str, str]:
    """The text that the digest is of, and the digest that the file states."""
    meaning, _, end = text.rpartition(',"sha256":"')
    return meaning + "}", end.removesuffix('"}')


def digest_of(meaning: str) -> str:
    """Return what tells files apart: the checksums of all tensors are part of what is hashed."""
    return hashlib.sha256(meaning.encode(errors="surrogatepass")).hexdigest()


def _parsed(text: str | bytes) -> Any:
    """JSON, or None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def damaged(where: str, what: str) -> FileError:
    """Return the error for a file that was changed after it was written."""
    return FileError(
        "damaged", f"{where}: the file is damaged: {what} after it was written; use a copy"
    )
