"""Embedding files: npz with `x` (n, m) and, where labelled, `y` (n,); read without pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb import _validate

Array = npt.NDArray[Any]

_KINDS = {"i": "integers", "u": "integers", "b": "booleans", "U": "strings"}


def read_embeddings(path: str | Path, name: str = "file", width: int | None = None) -> Array:
    """Read `x` from an npz file as float32 (n, m), all finite; errors start with `name`."""
    return _embeddings(path, _arrays(path, name, ("x",))["x"], name, width)


def read_labelled(
    path: str | Path, name: str = "file", width: int | None = None, like: Array | None = None
) -> tuple[Array, Array]:
    """Read `x` as float32 (n, m) and `y` (n,) as integers, strings or booleans.

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
                arrays = {key: archive[key] for key in wanted if key in held}
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
    _validate.rows(x, where)
    if width is not None and x.shape[1] != width:
        raise ValueError(
            f"{where}: expected width {width}, as in the train file; got {x.shape[1]}; "
            "use embeddings of the same encoder"
        )
    # A float64 beyond float32's range overflows to infinity here, and is then refused as such.
    with np.errstate(over="ignore"):
        return _validate.as_float32(x, where).numpy()


def _as_int64(y: Array, where: str) -> Array:
    if y.dtype.kind == "u" and y.size and int(y.max()) > np.iinfo(np.int64).max:
        raise ValueError(
            f"{where}: expected labels below 2**63; got {y.max()}; renumber the labels"
        )
    return y.astype(np.int64)
