"""Checks on what users pass in.

Each error names the argument, what was expected, what came, and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.filesize import decimal
from torch import Tensor

from dkvb._support import memory


def one_of(name: str, value: Any, options: Collection[str | None]) -> Any:
    """Return `value` if it is one of `options`, else raise an error that lists them.

    >>> one_of("order", "iid", ["iid", "class-incremental"])
    'iid'
    """
    if not isinstance(value, str | None) or value not in options:
        valid = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}: expected one of {valid}; got {value!r}")
    return value


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an int if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}: expected a whole number of at least 1; got {value!r}")
    return int(value)


def real(
    name: str,
    value: Any,
    *,
    low: float = float("-inf"),
    high: float = float("inf"),
    low_open: bool = False,
) -> float:
    """Return `value` as a float if it is a finite number in [low, high], or (low, high]."""
    number = (
        float("nan") if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    )
    inside = low <= number <= high and not (low_open and number == low)
    if not inside or not np.isfinite(number):
        bracket, end = "(" if low_open else "[", ")" if high == float("inf") else "]"
        raise ValueError(
            f"{name}: expected a number in {bracket}{low:g}, {high:g}{end}; got {value!r}"
        )
    return float(value)


def seed(name: str, value: Any) -> int:
    """One integer from what scikit-learn calls a random state: an int, None or a RandomState."""
    if value is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(value, np.random.RandomState):
        return int(value.randint(np.iinfo(np.int32).max))
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ValueError(
            f"{name}: expected a whole number of at least 0, None or a numpy RandomState; "
            f"got {value!r}"
        )
    return int(value)


@cache
def check_device(device: Any) -> None:
    """Raise for a device that is not one of ours, or not there."""
    one_of("device", str(device).split(":")[0], ("cpu", "cuda"))
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device: expected a machine with CUDA for 'cuda'; got none; use 'cpu'")


def check_memory(name: str, n_bytes: int, remedy: str, device: torch.device | str = "cpu") -> None:
    """Raise MemoryError where `name` needs more bytes than are free on a device.

    >>> check_memory("values (C, K, Y)", 8 * 4096 * 10 * 4, "learn fewer classes")
    """
    if n_bytes <= memory.SMALL:
        return
    free = memory.free_memory(device)
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{name}: expected to fit in memory; it takes {decimal(n_bytes)}, and {decimal(free)} "
            f"are free; nothing was changed; {remedy}"
        )


def new_file(name: str, path: Any) -> Path:
    """Return `path` as a Path if a file can be written there, or written over."""
    place = Path(path)
    if not place.parent.is_dir():
        raise ValueError(
            f"{name}: expected a file in a folder that exists; got {place}, and there is no folder "
            f"{place.parent}; make it first, or choose another name"
        )
    if place.is_dir():
        raise ValueError(
            f"{name}: expected the name of a file; got the folder {place}; add a name to it"
        )
    return place


def rows(X: Any, name: str = "X", width: int | None = None) -> Any:
    """Check, without reading it, that `X` is an array of rows: (n, m), neither 0, of real numbers.

    Lists become arrays; arrays, memory maps and tensors come back as they are.
    """
    if not isinstance(X, np.ndarray | Tensor):
        try:
            X = np.asarray(X)
        except ValueError as problem:
            raise ValueError(
                f"{name}: expected rows of one length; got rows that differ ({problem})"
            ) from None
    if isinstance(X, Tensor) and (X.layout != torch.strided or X.is_quantized or X.is_meta):
        raise TypeError(
            f"{name}: expected a dense tensor of real numbers; got layout {X.layout}, dtype "
            f"{X.dtype} on {X.device}; convert it with to_dense() or dequantize()"
        )
    if X.ndim != 2:
        hint = "; reshape a single row with X[None, :]" if X.ndim == 1 else ""
        raise ValueError(
            f"{name}: expected a 2-d array (rows, width); got shape {tuple(X.shape)}{hint}"
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(
            f"{name}: expected at least one row and one column; got shape {tuple(X.shape)}"
        )
    numeric = not X.is_complex() if isinstance(X, Tensor) else X.dtype.kind in "fiub"
    if not numeric:
        raise TypeError(f"{name}: expected real numbers; got dtype {X.dtype}; convert to float32")
    if width is not None and X.shape[1] != width:
        raise ValueError(
            f"{name}: expected width {width}, as at fitting; got {X.shape[1]}; "
            "use embeddings of the same encoder"
        )
    return X


def as_float32(X: Any, name: str = "X", first_row: int = 0) -> Tensor:
    """Rows as a float32 tensor, refused where an entry is not a finite float32."""
    if isinstance(X, Tensor):
        tensor = X.detach().to(torch.float32)
    else:
        with np.errstate(over="ignore"):  # the check below says better what is wrong
            array = np.ascontiguousarray(X, dtype=np.float32)
        # Copied where read-only (memory maps): torch tensors cannot be marked read-only. A single
        # row, reversed, counts as contiguous, but torch knows no negative strides.
        usable = array.flags.writeable and min(array.strides, default=0) >= 0
        tensor = torch.from_numpy(array if usable else array.copy())
    if math.isfinite(tensor.sum()):  # as it mostly is, and then nothing is infinite or NaN
        return tensor
    finite = torch.isfinite(tensor).all(dim=-1)
    if not bool(finite.all()):
        bad = torch.nonzero(~finite)[:, 0]
        raise ValueError(
            f"{name}: expected finite float32 numbers; got NaN or infinity in {len(bad)} row(s), "
            f"the first is row {first_row + int(bad[0])}; drop or repair those rows"
        )
    return tensor


def chunks(
    X: Any, size: int, name: str = "X", device: torch.device | str = "cpu"
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice, float32 rows on `device`) over X, never holding more than `size` rows."""
    for start in range(0, X.shape[0], size):
        part = slice(start, min(start + size, X.shape[0]))
        yield part, as_float32(X[part], name, first_row=start).to(device)


MOST_ROWS = 10**9  # of one call, each counted as often as its weight says


def repeated(sample_weight: Any, n: int) -> NDArray[np.int64]:
    """Return row numbers, each as often as its weight says.

    >>> repeated([2, 0, 1], 3)
    array([0, 0, 2])
    """
    if isinstance(sample_weight, Tensor):
        sample_weight = sample_weight.detach().cpu()
    weight = np.asarray(sample_weight)
    if weight.shape != (n,) or weight.dtype.kind not in "iufb":
        raise ValueError(
            f"sample_weight: expected {n} numbers, one for each row; "
            f"got dtype {weight.dtype} of shape {weight.shape}"
        )
    with np.errstate(invalid="ignore"):
        times = weight.astype(np.int64)
    if (times != weight).any() or (times < 0).any():
        raise ValueError(
            "sample_weight: expected whole numbers of at least 0, since a row is learned a whole "
            "number of times; got others; scale and round them, such as 0.5, 1 to 1, 2"
        )
    if not times.any():
        raise ValueError("sample_weight: expected a row that counts; got zeros only")
    if times.sum(dtype=np.float64) > MOST_ROWS:
        raise ValueError(
            f"sample_weight: expected at most {MOST_ROWS} rows in all, each counted as often as "
            f"its weight says; got {times.sum(dtype=np.float64):.3g}; divide the weights by a "
            "common factor"
        )
    return np.repeat(np.arange(n), times)
