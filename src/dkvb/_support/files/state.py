"""The state of a thing that is saved: its tensors and its facts, which are anything JSON holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.files.errors import FileError


@dataclass
class State:
    """Tensors and facts by name; those of a part have its name and a slash before their own.

    What is read from a file is asked for with the type, dtype and shape that it must have, so that
    a file whose numbers do not fit together is refused before anything is made of them.

    >>> state = State({"values": torch.zeros(2, 3)}, {"epoch": 4})
    >>> state.tensor("values", torch.float32, (2, None)).shape
    torch.Size([2, 3])
    >>> State().with_part("rule", state).part("rule").fact("epoch", int)
    4
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None  # of the file that it was read from

    @classmethod
    def of(cls, **tensors: Tensor | NDArray[Any]) -> State:
        """Tensors and arrays by name."""
        return cls({name: torch.as_tensor(tensor) for name, tensor in tensors.items()})

    def with_part(self, name: str, part: State) -> State:
        """The same state with another inside."""
        return State(
            {**self.tensors, **{f"{name}/{key}": tensor for key, tensor in part.tensors.items()}},
            {**self.facts, **{f"{name}/{key}": fact for key, fact in part.facts.items()}},
            self.path,
        )

    def part(self, name: str) -> State:
        """What `with_part` put in."""
        return State(_below(self.tensors, name), _below(self.facts, name), self.path)

    def tensor(
        self,
        name: str,
        dtype: torch.dtype | tuple[torch.dtype, ...],
        shape: Sequence[int | None],
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """The tensor of that name, if it has the dtype, or one of several, and the shape; None
        stands for any length."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise self.damaged(f"expected a tensor {name!r}; there is none")
        fits = len(shape) == tensor.ndim and all(
            wanted in (None, length) for wanted, length in zip(shape, tensor.shape, strict=True)
        )
        kinds = dtype if isinstance(dtype, tuple) else (dtype,)
        if not fits or tensor.dtype not in kinds:
            expected = f"{' or '.join(_short(kind) for kind in kinds)} {_shown(shape)}"
            raise self.damaged(
                f"tensor {name!r}: expected {expected}; "
                f"got {_short(tensor.dtype)} {_shown(tensor.shape)}"
            )
        return tensor.to(device)

    def whole_numbers(
        self, name: str, shape: Sequence[int | None], low: int = 0, high: int = 1 << 62
    ) -> Tensor:
        """An int64 tensor whose entries lie in [low, high)."""
        tensor = self.tensor(name, torch.int64, shape)
        if tensor.numel() and not low <= int(tensor.min()) <= int(tensor.max()) < high:
            raise self.damaged(
                f"tensor {name!r}: expected numbers from {low} to {high - 1}; "
                f"got {int(tensor.min())} to {int(tensor.max())}"
            )
        return tensor

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


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shown(shape: Sequence[int | None]) -> str:
    return "(" + ", ".join("any" if length is None else str(length) for length in shape) + ")"
