"""Embedding files: npz with `x` (n, m) and, where labelled, `y` (n,); read without pickle.

A large `x` that is not compressed, as numpy.savez and `write_embeddings` leave it, is not read
but memory-mapped, in float32 or float16: the rows that are used come from the disk.

`dkvb embed` also writes `encoder` and `encoder_fingerprint`, a string each: what made the rows.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dkvb._support import validation
from dkvb._support.files import replace_file

Array = npt.NDArray[Any]

MAPPED_FROM = 1 << 30  # bytes of `x`: what is smaller is read, and then independent of the file

_KINDS = {"i": "integers", "u": "integers", "b": "booleans", "U": "strings"}
_CHUNK = 1 << 16  # rows that are checked at a time
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")  # of a member in a zip archive: signature to lengths
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same rows make the same file, whenever


def read_embeddings(path: str | Path, name: str = "file", width: int | None = None) -> Array:
    """Read `x` (n, m) from an npz file, all finite; errors start with `name`.

    Float32 in memory; from `MAPPED_FROM` bytes on, memory-mapped in the file's own float type.
    """
    return _embeddings(path, _arrays(path, name, ("x",))["x"], name, width)


def read_labelled(
    path: str | Path, name: str = "file", width: int | None = None, like: Array | None = None
) -> tuple[Array, Array]:
    """Read `x` (n, m) as `read_embeddings` does, and `y` (n,): integers, strings or booleans.

    `like`: labels of another file that these must be of one kind with.
    """
    arrays = _arrays(path, name, ("x", "y"))
    x = _embeddings(path, arrays["x"], name, width)
    y = arrays["y"]
    where = f"{name} {path}, y"
    if y.dtype.kind not in _KINDS:
        raise TypeError(
            f"{where}: expected labels that are integers or strings; got dtype {y.dtype}; "
            "convert them, e.g. with y.astype(int) or y.astype(str)"
        )
    if y.shape != (len(x),):
        raise ValueError(
            f"{where}: expected one label a row, shape ({len(x)},); got {y.shape}; "
            "save x and y of the same rows"
        )
    if like is not None and _KINDS[y.dtype.kind] != _KINDS[like.dtype.kind]:
        raise TypeError(
            f"{where}: expected {_KINDS[like.dtype.kind]}, as in the train file; "
            f"got {_KINDS[y.dtype.kind]}; use one kind of label in both files"
        )
    return x, _as_int64(y, where) if y.dtype.kind in "iu" else y


def read_encoder(path: str | Path, name: str = "file") -> tuple[str | None, str | None]:
    """The name and the fingerprint of the encoder that made a file's rows; None where not told."""
    if not zipfile.is_zipfile(path):
        return None, None  # whoever reads the rows says what is wrong
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = set(archive.files)
            encoder, fingerprint = (
                _text(archive[key]) if key in held else None
                for key in ("encoder", "encoder_fingerprint")
            )
    except Exception as error:  # as below
        raise ValueError(
            f"{name} {path}: expected an npz file with strings encoder and encoder_fingerprint, or "
            f"without them; they cannot be read ({error}); write it again with dkvb embed, or x "
            "and y alone with numpy.savez"
        ) from error
    return encoder, fingerprint


def _text(array: Array) -> str | None:
    """One string; None for what an array of that name may hold in files of others."""
    return str(array) or None if array.dtype.kind == "U" and array.ndim == 0 else None


def _arrays(path: str | Path, name: str, wanted: tuple[str, ...]) -> dict[str, Array]:
    if not Path(path).is_file():
        raise ValueError(f"{name}: expected an npz file; found no file at {path}; check the path")
    try:
        with Path(path).open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is no npz archive, or a cut one")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                held = list(archive.files)
                mapped = _mapped(path, archive.zip) if "x" in held else None
                arrays = {} if mapped is None else {"x": mapped}
                arrays |= {key: archive[key] for key in wanted if key in held and key not in arrays}
    except Exception as error:  # a foreign file makes the reader raise anything: all mean the same
        raise ValueError(
            f"{name} {path}: expected an npz file with arrays {' and '.join(wanted)}; it cannot be "
            f"read ({error}); write it again with numpy.savez"
        ) from error
    missing = [key for key in wanted if key not in arrays]
    if missing:
        raise ValueError(
            f"{name} {path}: expected arrays {' and '.join(wanted)}; "
            f"got {', '.join(held) or 'none'}; add {' and '.join(missing)} with numpy.savez"
        )
    return arrays


def _embeddings(path: str | Path, x: Array, name: str, width: int | None) -> Array:
    where = f"{name} {path}, x"
    validation.rows(x, where)
    if width is not None and x.shape[1] != width:
        raise ValueError(
            f"{where}: expected width {width}, as in the train file; got {x.shape[1]}; "
            "use embeddings of the same encoder"
        )
    if isinstance(x, np.memmap):
        for _ in validation.chunks(x, _CHUNK, where):  # which refuses what is not finite
            pass
        return x
    # A float64 beyond float32's range overflows to infinity here, and is then refused as such.
    with np.errstate(over="ignore"):
        return validation.as_float32(x, where).numpy()


def _mapped(path: str | Path, archive: Any) -> Array | None:
    """`x` as a memory map, if it is large, of floats, in rows and not compressed; else None."""
    member = archive.getinfo("x.npy")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < MAPPED_FROM:
        return None
    with Path(path).open("rb") as file:
        file.seek(member.header_offset)
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        file.seek(name_length + extra_length, io.SEEK_CUR)
        shape, by_column, dtype = _npy_header(file)
        if by_column or dtype not in (np.float32, np.float16):
            return None
        return np.memmap(path, dtype, "r", file.tell(), shape)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def write_embeddings(path: str | Path, parts: Iterable[Array], **more: npt.ArrayLike) -> None:
    """Write `x`, given in parts (rows of one width and type), and further arrays as npz.

    Never more than a part is in memory; the file is there in full or not at all, and the same
    arrays make the same bytes.
    """
    replace_file(Path(path), _archive(parts, {key: np.asarray(a) for key, a in more.items()}))


def _archive(parts: Iterable[Array], more: Mapping[str, Array]) -> Iterator[bytes]:
    """The bytes of an npz file, piece by piece."""
    parts = list(parts)  # memory maps: nothing is read yet
    header = np.lib.format.header_data_from_array_1_0(parts[0])
    header |= {"shape": (sum(map(len, parts)), parts[0].shape[1]), "fortran_order": False}
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        with archive.open(zipfile.ZipInfo("x.npy", _EPOCH), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for part in parts:
                member.write(part.tobytes())
                yield sink.taken()
        for key, array in more.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy", _EPOCH), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that cannot be sought: what was written is taken away in turn."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._length += len(self._pieces[-1])
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _as_int64(y: Array, where: str) -> Array:
    if y.dtype.kind == "u" and y.size and int(y.max()) > np.iinfo(np.int64).max:
        raise ValueError(
            f"{where}: expected labels below 2**63; got {y.max()}; renumber the labels"
        )
    return y.astype(np.int64)
