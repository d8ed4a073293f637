"""Checks on what users pass in.

Each error names the argument, what was expected, what came, and the remedy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from dkvb._support import memory
from dkvb._support.optional import require_torch


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
    if str(device).startswith("cuda"):
        torch = require_torch(f"device {str(device)!r}")
        if not torch.cuda.is_available():
            raise ValueError("device: expected a machine with CUDA for 'cuda'; got none; use 'cpu'")


def check_memory(name: str, n_bytes: int, remedy: str, device: Any = "cpu") -> None:
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


def is_tensor(X: Any) -> bool:
    """Whether `X` is a tensor of torch, which is not imported for this: nobody could have made one
    without it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def rows(X: Any, name: str = "X", width: int | None = None) -> Any:
    """Check, without reading it, that `X` is an array of rows: (n, m), neither 0, of real numbers.

    Lists become arrays; arrays, memory maps and tensors come back as they are.
    """
    tensor = is_tensor(X)
    if not tensor and not isinstance(X, np.ndarray):
        try:
            X = np.asarray(X)
        except ValueError as problem:
            raise ValueError(
                f"{name}: expected rows of one length; got rows that differ ({problem})"
            ) from None
    if tensor and (str(X.layout) != "torch.strided" or X.is_quantized or X.is_meta):
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
    numeric = not X.is_complex() if tensor else X.dtype.kind in "fiub"
    if not numeric:
        raise TypeError(f"{name}: expected real numbers; got dtype {X.dtype}; convert to float32")
    if width is not None and X.shape[1] != width:
        raise ValueError(
            f"{name}: expected width {width}, as at fitting; got {X.shape[1]}; "
            "use embeddings of the same encoder"
        )
    return X


def embeddings(X: Any, estimator: Any = None, fresh: bool = True) -> Any:
    """Embeddings (n, m) for an estimator, or an error that says what is wrong with them; unless
    `fresh`, with the features of what it learned before.

    Arrays, lists and data frames become float32 arrays. Memory maps and tensors stay as they are,
    and their entries are checked when they are read.
    """
    tensor, plain = is_tensor(X), _is_plain(X)
    if tensor or isinstance(X, np.memmap):
        found = rows(X)
    elif plain and math.isfinite(_sum(X)):
        found = _usable(X)
    else:
        from sklearn.utils import check_array  # slow to import, and modules do without it

        given = np.asarray(X) if isinstance(X, list | tuple) else X
        if getattr(getattr(given, "dtype", None), "kind", "f") in "USMm":  # "0.5" would become 0.5
            raise TypeError(f"X: expected numbers; got dtype {given.dtype}; convert to float32")
        with np.errstate(over="ignore", invalid="ignore"):  # the check says better what is wrong
            how = {"dtype": np.float32, "order": "C", "estimator": estimator, "input_name": "X"}
            found = np.asarray(_usable(check_array(given, **how)))
    # Neither has names of features, and scikit-learn takes long to find out. It warns of arrays
    # where there were names before.
    unnamed = tensor or (plain and not hasattr(estimator, "feature_names_in_"))
    unnamed = unnamed and X.shape[1] == getattr(estimator, "n_features_in_", None)
    if not fresh and not unnamed:
        from sklearn.utils.validation import validate_data

        validate_data(estimator, X, reset=False, skip_check_array=True)
    return found


def _is_plain(X: Any) -> bool:
    """Whether scikit-learn would return `X` as it is, if its numbers are finite: it takes long to
    find that out, and a service asks it with every request."""
    if type(X) is not np.ndarray or X.dtype != np.float32 or X.ndim != 2 or not X.size:
        return False
    return X.flags.c_contiguous


def _sum(array: NDArray[Any]) -> float:
    """The sum of all numbers: where it is finite, as it mostly is, each of them is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(array.sum())


def as_float32(X: Any, name: str = "X", first_row: int = 0) -> NDArray[np.float32]:
    """Rows as a float32 array that can be written to, refused where an entry is not a finite
    float32."""
    if is_tensor(X):
        X = X.detach().float().cpu().numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # the check below says better what is wrong
        array = _usable(np.ascontiguousarray(X, dtype=np.float32))
    if not math.isfinite(_sum(array)):
        check_finite(np.isfinite(array).all(axis=-1), name, first_row)
    return array


def check_finite(finite: NDArray[np.bool_], name: str, first_row: int) -> None:
    """Raise unless every row is finite (n,); `first_row` is the number of the first of them."""
    bad = np.flatnonzero(~finite)
    if len(bad):
        raise ValueError(
            f"{name}: expected finite float32 numbers; got NaN or infinity in {len(bad)} row(s), "
            f"the first is row {first_row + int(bad[0])}; drop or repair those rows"
        )


def _usable(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy that torch can share: it knows neither read-only tensors (of memory
    maps) nor negative strides (a single row, reversed, counts as contiguous)."""
    usable = array.flags.writeable and min(array.strides, default=0) >= 0
    return array if usable else array.copy()


def chunks(X: Any, size: int, name: str = "X") -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield (slice, float32 rows) over X, never holding more than `size` rows."""
    for start in range(0, X.shape[0], size):
        part = slice(start, min(start + size, X.shape[0]))
        yield part, as_float32(X[part], name, first_row=start)


MOST_ROWS = 10**9  # of one call, each counted as often as its weight says


def repeated(sample_weight: Any, n: int) -> NDArray[np.int64]:
    """Return row numbers, each as often as its weight says.

    >>> repeated([2, 0, 1], 3)
    array([0, 0, 2])
    """
    if is_tensor(sample_weight):
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
