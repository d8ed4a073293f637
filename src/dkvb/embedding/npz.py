"""Embedding files: npz with `x` (n, m) and, where labelled, `y` (n,); read without pickle.

A large `x` that is not compressed, as numpy.savez and `write_embeddings` leave it, is not read
but memory-mapped, in float32 or float16: the rows that are used come from the disk.

`dkvb embed` also writes `names` (n,), the items' names or texts, and `encoder` and
`encoder_fingerprint`, one string each: what made the rows.
"""

from __future__ import annotations

import itertools
import math
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.filesize import decimal

from dkvb._support import validation
from dkvb._support.files import replace_file
from dkvb._support.files.sink import Sink
from dkvb._support.label_text import check_text_array

Array = npt.NDArray[Any]

MAPPED_FROM = 1 << 30  # bytes of `x`: what is smaller is read, and then independent of the file

_KINDS = {"i": "integers", "u": "integers", "b": "booleans", "U": "strings"}
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16))  # that are memory-mapped as they are
_CHUNK = 1 << 16  # rows that are checked at a time
_SMALL = 1 << 16  # bytes of a text
_MEMORY = 900 << 20  # bytes that arrays may take however small their file is
_EXPANSION = 16  # and how many times the size of a larger file they may take
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")  # of a member in a zip archive: signature to lengths
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same rows make the same file, whenever


def read_embeddings(path: str | Path, name: str = "file", width: int | None = None) -> Array:
    """Read `x` (n, m) from an npz file, all finite; errors start with `name`.

    Float32 in memory; from `MAPPED_FROM` bytes on, memory-mapped in the file's own float type.
    """
    return _read(path, name, ("x",), width)["x"]


def read_labelled(
    path: str | Path, name: str = "file", width: int | None = None, like: Array | None = None
) -> tuple[Array, Array]:
    """Read `x` (n, m) as `read_embeddings` does, and `y` (n,): integers, strings or booleans.

    `like`: labels of another file that these must be of one kind with.
    """
    arrays = _read(path, name, ("x", "y"), width)
    x, y = arrays["x"], arrays["y"]
    where = f"{name} {path}, y"
    if like is not None and _KINDS[y.dtype.kind] != _KINDS[like.dtype.kind]:
        raise TypeError(
            f"{where}: expected {_KINDS[like.dtype.kind]}, as in the train file; "
            f"got {_KINDS[y.dtype.kind]}; use one kind of label in both files"
        )
    check_text_array(y, where)
    return x, _as_int64(y, where) if y.dtype.kind in "iu" else y


def read_encoder(path: str | Path, name: str = "file") -> tuple[str | None, str | None]:
    """The name and the fingerprint of the encoder that made a file's rows; None where unknown."""
    if not zipfile.is_zipfile(path):
        return None, None  # whoever reads the rows says what is wrong
    try:
        with zipfile.ZipFile(path) as archive:
            encoder, fingerprint = (
                _text(archive, key) for key in ("encoder", "encoder_fingerprint")
            )
    except Exception as error:  # as below
        raise ValueError(
            f"{name} {path}: expected an npz file with strings encoder and encoder_fingerprint, or "
            f"without them; they cannot be read ({error}); write it again with dkvb embed, or x "
            "and y alone with numpy.savez"
        ) from error
    return encoder, fingerprint


def read_names(path: str | Path, n_rows: int) -> list[str] | None:
    """The name of each row's item, as `dkvb embed` writes them; None where there are none."""
    try:
        with zipfile.ZipFile(path) as archive:
            if "names.npy" not in archive.namelist():
                return None
            member = _member(archive, "names")
            if member.dtype.kind != "U" or member.shape != (n_rows,):
                return None
            _check_memory(path, "names", [member], None)
            names: list[str] = _array(archive, member).tolist()
            return names
    except Exception:  # names are for people: rows without them can be used
        return None


def width_of(path: str | Path, name: str = "file") -> int:
    """The width m of a file's embeddings, by the header of `x` alone."""
    with _opened(path, name, ("x",)) as (_, members):
        return int(members["x"].shape[1])


class _Member(NamedTuple):
    """An array of an archive, as its header describes it."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    by_column: bool
    dtype: np.dtype[Any]
    start: int  # bytes of the header

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _read(
    path: str | Path, name: str, keys: tuple[str, ...], width: int | None
) -> dict[str, Array]:
    """Arrays by name. All that headers say is checked before anything is inflated."""
    with _opened(path, name, keys) as (archive, members):
        where = f"{name} {path}, x"
        n, m = members["x"].shape
        if width is not None and m != width:
            raise ValueError(
                f"{where}: expected width {width}, as in the train file; got {m}; "
                "use embeddings of the same encoder"
            )
        if "y" in members:
            check_labels(members["y"].dtype, members["y"].shape, n, f"{name} {path}, y")
        mapped = _mapped(path, members["x"])
        _check_memory(path, name, [one for key, one in members.items() if key in keys], mapped)
        try:
            arrays = {
                key: mapped if key == "x" and mapped is not None else _array(archive, members[key])
                for key in keys
            }
        except Exception as error:  # damaged content makes the readers raise anything
            raise _unreadable(path, name, keys, error) from error
    arrays["x"] = in_memory_or_mapped(arrays["x"], where)
    return arrays


@contextmanager
def _opened(
    path: str | Path, name: str, keys: tuple[str, ...]
) -> Iterator[tuple[zipfile.ZipFile, dict[str, _Member]]]:
    """An archive and the headers of its arrays `keys`, of which `x` is a table of numbers."""
    if not Path(path).is_file():
        raise ValueError(f"{name}: expected an npz file; found no file at {path}; check the path")
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a foreign file makes the reader raise anything: all mean the same
        raise _unreadable(path, name, keys, "it is no npz archive, or a cut one") from error
    with archive:
        held = [one.removesuffix(".npy") for one in archive.namelist()]
        missing = [key for key in keys if key not in held]
        if missing:
            raise ValueError(
                f"{name} {path}: expected arrays {' and '.join(keys)}; "
                f"got {', '.join(held[:20]) or 'none'}; add {' and '.join(missing)} with "
                "numpy.savez"
            )
        try:
            members = {key: _member(archive, key) for key in keys}
        except Exception as error:
            raise _unreadable(path, name, keys, error) from error
        _check_table(members["x"], f"{name} {path}, x")
        yield archive, members


def _unreadable(path: str | Path, name: str, keys: tuple[str, ...], why: Any) -> ValueError:
    reason = " ".join(str(why).split())[:200]
    return ValueError(
        f"{name} {path}: expected an npz file with arrays {' and '.join(keys)}; it cannot be "
        f"read ({reason}); write it again with numpy.savez"
    )


def _member(archive: zipfile.ZipFile, key: str) -> _Member:
    info = archive.getinfo(f"{key}.npy")
    with archive.open(info) as file:
        shape, by_column, dtype = _npy_header(file)
        member = _Member(info, shape, by_column, dtype, file.tell())
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects, which are never loaded")
    if min(shape, default=0) < 0 or member.start + member.size != info.file_size:
        raise ValueError(
            f"{key} has {info.file_size} bytes, and its header describes "
            f"{member.start + member.size}"
        )
    return member


def _check_table(member: _Member, where: str) -> None:
    """Refuse by its header what `validation.rows` refuses: an array of this shape and no memory."""
    validation.rows(np.broadcast_to(np.empty((), member.dtype), member.shape), where)


def check_labels(dtype: np.dtype[Any], shape: tuple[int, ...], n: int, where: str) -> None:
    """Raise where an array of that type and shape cannot be the labels of n rows."""
    if dtype.kind not in _KINDS:
        raise TypeError(
            f"{where}: expected labels that are integers or strings; got dtype {dtype}; "
            "convert them, e.g. with y.astype(int) or y.astype(str)"
        )
    if shape != (n,):
        raise ValueError(
            f"{where}: expected one label per row, shape ({n},); got {shape}; "
            "save x and y of the same rows"
        )


def _check_memory(
    path: str | Path, name: str, members: list[_Member], mapped: Array | None
) -> None:
    """Refuse what would take far more memory than the file takes on disk."""
    needed = 0
    for member in members:
        if mapped is None or len(member.shape) != 2:
            as_float32 = 4 * math.prod(member.shape) if len(member.shape) == 2 else 0
            needed += member.size + (as_float32 if member.dtype != np.float32 else 0)
    size = Path(path).stat().st_size
    if needed > max(_EXPANSION * size, _MEMORY):
        raise ValueError(
            f"{name} {path}: expected arrays of at most {_EXPANSION} times the size of the file, "
            f"{decimal(size)}; they would take {decimal(needed)} of memory; write it again "
            "uncompressed with numpy.savez if it is meant"
        )


def _array(archive: zipfile.ZipFile, member: _Member) -> Array:
    with archive.open(member.info) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        file.read(1)  # at its end the archive's checksum is compared
    return array


def _text(archive: zipfile.ZipFile, key: str) -> str | None:
    """One string; None for what an array of that name may hold in files of others."""
    if f"{key}.npy" not in archive.namelist():
        return None
    member = _member(archive, key)
    if member.dtype.kind != "U" or member.shape or member.size > _SMALL:
        return None
    return str(_array(archive, member)) or None


def in_memory_or_mapped(x: Array, where: str) -> Array:
    """Return embeddings (n, m), all finite: a large memory map of floats as it is, else float32."""
    if isinstance(x, np.memmap) and x.nbytes >= MAPPED_FROM and x.dtype in _FLOATS:
        for _ in validation.chunks(x, _CHUNK, where):  # which refuses what is not finite
            pass
        return x
    # A float64 beyond float32's range overflows to infinity here, and is then refused as such.
    with np.errstate(over="ignore"):
        return validation.as_float32(x, where)


def _mapped(path: str | Path, member: _Member) -> Array | None:
    """`x` as a memory map, if it is large, of floats, in rows and not compressed; else None."""
    if member.info.compress_type != zipfile.ZIP_STORED or member.info.file_size < MAPPED_FROM:
        return None
    if member.by_column or member.dtype not in _FLOATS:
        return None
    with Path(path).open("rb") as file:
        file.seek(member.info.header_offset)
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        start = file.tell() + name_length + extra_length + member.start
    return np.memmap(path, member.dtype, "r", start, member.shape)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def write_embeddings(
    path: str | Path, parts: Iterable[Array], n_rows: int | None = None, **more: npt.ArrayLike
) -> None:
    """Write `x`, given in parts (rows of one width and type), and further arrays as npz.

    With `n_rows`, the number of rows in all parts, never more than one part is in memory. The file
    is there in full or not at all, and the same arrays make the same bytes.
    """
    if n_rows is None:
        parts = list(parts)
        n_rows = sum(map(len, parts))
    arrays = {key: np.asarray(array) for key, array in more.items()}
    replace_file(Path(path), _archive(iter(parts), n_rows, arrays))


def _archive(parts: Iterator[Array], n_rows: int, more: Mapping[str, Array]) -> Iterator[bytes]:
    """The bytes of an npz file, piece by piece."""
    first = next(parts)
    header = np.lib.format.header_data_from_array_1_0(first)
    header |= {"shape": (n_rows, first.shape[1]), "fortran_order": False}
    sink = Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        with archive.open(zipfile.ZipInfo("x.npy", _EPOCH), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for part in itertools.chain([first], parts):
                member.write(part.tobytes())
                yield sink.taken()
        for key, array in more.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy", _EPOCH), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
            yield sink.taken()
    yield sink.taken()


def _as_int64(y: Array, where: str) -> Array:
    if y.dtype.kind == "u" and y.size and int(y.max()) > np.iinfo(np.int64).max:
        raise ValueError(
            f"{where}: expected labels below 2**63; got {y.max()}; renumber the labels"
        )
    return y.astype(np.int64)
