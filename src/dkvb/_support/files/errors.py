"""What can be wrong with a file."""

from __future__ import annotations


class FileError(ValueError):
    """A file that cannot be used, and why: `reason` is one of REASONS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str]]:
        return FileError, (self.reason, str(self))


REASONS = ("truncated", "foreign", "newer", "damaged", "missing")
