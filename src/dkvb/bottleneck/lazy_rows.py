"""Embeddings that stand behind codes, read only by those who need more than the codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class PickedRows:
    """Rows of an array, which are read when somebody asks for them: most users of codes do not,
    and the array may be a memory map larger than memory."""

    def __init__(self, array: NDArray[Any], places: NDArray[Any]) -> None:
        self._array, self._places = array, places
        self.shape, self.dtype = (len(places), *array.shape[1:]), array.dtype

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, rows: Any) -> Any:
        return self._array[self._places[rows]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def picked(array: Any, rows: Any) -> Any:
    """Some rows of an array, a tensor or of rows picked before."""
    if isinstance(array, Tensor):
        return array[rows.to(array.device) if isinstance(rows, Tensor) else rows]
    rows = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
    if isinstance(array, PickedRows):
        return PickedRows(array._array, array._places[rows])
    if isinstance(rows, slice | int):
        return array[rows]
    places = np.asarray(rows)
    return PickedRows(array, np.flatnonzero(places) if places.dtype == bool else places)
