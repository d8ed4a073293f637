"""Arrays and JSON in, safe files out, and back; knows no classifier.

A file is a safetensors file: tensors as they are, and a header in JSON that says what they mean.
Nothing in it can execute. `docs/reference/files.md` describes the layout.
"""

from __future__ import annotations

from dkvb._support.files.atomic import replace_file
from dkvb._support.files.container import Contents, decode, encode, read, write
from dkvb._support.files.errors import FileError
from dkvb._support.files.metadata import VERSION
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
