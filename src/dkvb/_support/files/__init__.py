"""Tensors and JSON in, safe files out, and back; knows no classifier.

A file is a safetensors file: tensors as they are, and a header in JSON that says what they mean.
Nothing in it can execute. `docs/reference/files.md` describes the layout.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dkvb._support.files.atomic import replace_file
from dkvb._support.files.errors import FileError
from dkvb._support.files.metadata import VERSION

if TYPE_CHECKING:
    from dkvb._support.files.container import Contents, decode, encode, read, write
    from dkvb._support.files.state import State

__all__ = [
    "VERSION",
    "Contents",
    "FileError",
    "State",
    "decode",
    "encode",
    "read",
    "replace_file",
    "write",
]

# What needs torch is imported on first use: a header is read without it.
_HOMES = {
    "State": "state",
    **dict.fromkeys(("Contents", "decode", "encode", "read", "write"), "container"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
