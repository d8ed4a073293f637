"""The state of a thing that is saved: its arrays and its facts, which are anything JSON holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dkvb._support.files.errors import FileError


@dataclass
class State:
    """Arrays and facts by name; those of a part have its name and a slash before their own.

    What is read from a file is asked for with the type, dtype and shape that it must have, so that
    a file whose numbers do not fit together is refused before anything is made of them.

    >>> state = State({"values": np.zeros((2, 3))}, {"epoch": 4})
    >>> state.array("values", np.float64, (2, None)).shape
    (2, 3)
    >>> State().with_part("rule", state).part("rule").fact("epoch", int)
    4
    """

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None  # of the file that it was read from

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None = None, /, **arrays: Any) -> State:
        """Facts, and arrays or tensors of torch by name; arrays share the memory of tensors."""
        return cls({name: _as_array(array) for name, array in arrays.items()}, dict(facts or {}))

    def with_part(self, name: str, part: State) -> State:
        """The same state with another inside."""
        return State(
            {**self.arrays, **{f"{name}/{key}": array for key, array in part.arrays.items()}},
            {**self.facts, **{f"{name}/{key}": fact for key, fact in part.facts.items()}},
            self.path,
        )

    def part(self, name: str) -> State:
        """What `with_part` put in."""
        return State(_below(self.arrays, name), _below(self.facts, name), self.path)

    def array(
        self,
        name: str,
        dtype: DTypeLike | tuple[DTypeLike, ...],
        shape: Sequence[int | None],
    ) -> NDArray[Any]:
        """The array of that name, if it has the dtype, or one of several, and the shape; None
        stands for any length."""
        array = self.arrays.get(name)
        if array is None:
            raise self.damaged(f"expected a tensor {name!r}; there is none")
        fits = len(shape) == array.ndim and all(
            wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
        )
        kinds = [np.dtype(kind) for kind in (dtype if isinstance(dtype, tuple) else (dtype,))]
        if not fits or array.dtype not in kinds:
            expected = f"{' or '.join(kind.name for kind in kinds)} {_shown(shape)}"
            raise self.damaged(
                f"tensor {name!r}: expected {expected}; "
                f"got {array.dtype.name} {_shown(array.shape)}"
            )
        return array

    def whole_numbers(
        self, name: str, shape: Sequence[int | None], low: int = 0, high: int = 1 << 62
    ) -> NDArray[np.int64]:
        """An int64 array whose entries lie in [low, high)."""
        array = self.array(name, np.int64, shape)
        if array.size and not low <= int(array.min()) <= int(array.max()) < high:
            raise self.damaged(
                f"tensor {name!r}: expected numbers from {low} to {high - 1}; "
                f"got {int(array.min())} to {int(array.max())}"
            )
        return array

    def fact(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The fact of that name, if it is of that type."""
        if name not in self.facts:
            raise self.damaged(f"expected a fact {name!r}; there is none")
        value = self.facts[name]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
            raise self.damaged(f"fact {name!r}: expected {names}; got {value!r:.60}")
        return value

    def whole_number(self, name: str, low: int = 0, high: int = 1 << 62) -> int:
        """A fact that is an integer in [low, high)."""
        value = int(self.fact(name, int))
        if not low <= value < high:
            raise self.damaged(f"fact {name!r}: expected {low} to {high - 1}; got {value:.0f}")
        return value

    def damaged(self, what: str) -> FileError:
        """An error that says where: the file reads well, but its content contradicts itself."""
        return FileError("damaged", f"{self.path or 'file'}: the content is damaged: {what}")


def _below(named: Mapping[str, Any], part: str) -> dict[str, Any]:
    prefix = part + "/"
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}


def _as_array(array: Any) -> NDArray[Any]:
    if hasattr(array, "detach"):  # a tensor of torch, on any device
        array = array.detach().cpu().numpy()
    return np.asarray(array)


def _shown(shape: Sequence[int | None]) -> str:
    return "(" + ", ".join("any" if length is None else str(length) for length in shape) + ")"
