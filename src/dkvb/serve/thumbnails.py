"""Small pictures of learned images, kept only with `--keep-images`, and gone when a row is."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dkvb._support.files import atomic

SIDE = 160  # pixels of the longer side
_NAME = re.compile(r"[0-9a-f]{40}\.jpg")


def thumbnail(image: Any) -> bytes:
    """Return a small JPEG of an image, without its metadata."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


class Thumbnails:
    """A folder of pictures; a file's name is a hash of its row's id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, ids: Iterable[Any], pictures: Iterable[bytes | None]) -> None:
        """Keep the pictures of rows."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for own, picture in zip(ids, pictures, strict=True):
            if picture is not None:
                atomic.replace_file(self._path(own), [picture], atomic.PRIVATE)

    def __contains__(self, own: Any) -> bool:
        return self._path(own).is_file()

    def get(self, own: Any) -> bytes | None:
        """Return the picture of a row; None where there is none."""
        with suppress(FileNotFoundError):
            return self._path(own).read_bytes()
        return None

    def keep_only(self, ids: Iterable[Any]) -> None:
        """Remove the pictures of all other rows."""
        if not self._folder.is_dir():
            return
        kept = {self._path(own).name for own in ids}
        for path in list(self._folder.iterdir()):
            if _NAME.fullmatch(path.name) and path.name not in kept:
                atomic.remove(path)

    def _path(self, own: Any) -> Path:
        # The type is part of it: 1 and "1" are different ids.
        digest = hashlib.sha256(f"{type(own).__name__} {own}".encode(errors="surrogatepass"))
        return self._folder / f"{digest.hexdigest()[:40]}.jpg"
