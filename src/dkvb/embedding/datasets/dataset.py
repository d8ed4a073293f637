"""Data sets: items as bytes that can be hashed and decoded, with names and labels."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support import validation
from dkvb._support.files.regular import read_regular
from dkvb._support.optional import require
from dkvb.embedding.pictures import pillow

if TYPE_CHECKING:
    from PIL import Image

Array = NDArray[Any]

FORMATS = ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"]  # and HEIF, where it is read
LARGEST_IMAGE = 100_000_000  # pixels: 300 MB when decoded
LARGEST_FILE = 512 << 20  # bytes of an image's file


@dataclass(frozen=True)
class Dataset:
    """n items of one kind: `read(i)` gives the bytes of item i, `decode` an image, text or row."""

    name: str
    kind: str  # "image", "text" or "vector"
    size: int
    read: Callable[[int], bytes]
    decode: Callable[[bytes], Any]
    item_name: Callable[[int], str]
    labels: Array | None = None  # (n,)
    path: Callable[[int], Path] | None = None  # where items are files of their own

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"data {self.name}: expected at least one item; found none")
        if self.labels is not None and self.labels.shape != (self.size,):
            raise ValueError(
                f"data {self.name}: expected one label per item, ({self.size},); "
                f"got {self.labels.shape}"
            )

    def __len__(self) -> int:
        return self.size

    def subsample(self, limit: int) -> Dataset:
        """At most `limit` items at even distances, since folders list one class after another.

        >>> letters = texts("letters", list("abcdefgh"))
        >>> [letters.subsample(3).item(i) for i in range(3)]
        ['a', 'd', 'h']
        """
        if validation.positive_int("limit", limit) >= self.size:
            return self
        rows = np.linspace(0, self.size - 1, limit).astype(np.int64)
        read, item_name, path = self.read, self.item_name, self.path
        return replace(
            self,
            name=f"{self.name}, {limit} of {self.size}",
            size=limit,
            read=lambda i: read(int(rows[i])),
            item_name=lambda i: item_name(int(rows[i])),
            labels=None if self.labels is None else self.labels[rows],
            path=None if path is None else lambda i: path(int(rows[i])),
        )

    def item(self, i: int) -> Any:
        """Item i, decoded."""
        return self.decode(self.read(i))


def image_files(
    name: str, paths: list[Path], labels: Array | None, root: Path | None = None
) -> Dataset:
    """Images in files; named by their paths below `root`."""
    return Dataset(
        name,
        "image",
        len(paths),
        lambda i: read_regular(paths[i], LARGEST_FILE),
        decode_image,
        lambda i: str(paths[i].relative_to(root) if root else paths[i]),
        labels,
        lambda i: paths[i],
    )


def decode_image(content: bytes, largest: int | None = None) -> Image.Image:
    """An image from the bytes of its file, upright as its EXIF orientation says.

    A file that is cut short, of another format, or of more than `largest` pixels raises.
    """
    library, largest = pillow("images"), largest or LARGEST_IMAGE
    try:
        # Only formats of photos and drawings: parsers of others are a risk without a use.
        image: Image.Image = library.open(io.BytesIO(content), formats=FORMATS)
        width, height = image.size
        if width * height > largest:
            raise ValueError(f"{width} x {height} pixels are more than {largest:,}")
        image.load()
    except library.UnidentifiedImageError as error:  # whose text names the buffer, not the file
        raise type(error)(
            f"the file is no image of a known format ({', '.join(FORMATS)})"
        ) from None
    except SyntaxError as error:  # which Pillow raises for some damaged files
        raise library.UnidentifiedImageError(f"the file is damaged: {error}") from error
    except library.DecompressionBombError as error:  # before the sides can be asked for
        raise ValueError(f"more than {largest:,} pixels: {error}") from None
    upright: Image.Image = require("PIL.ImageOps", "images", "images").exif_transpose(image)
    return upright


def image_array(name: str, pixels: Array, labels: Array | None) -> Dataset:
    """Images in one array, (n, height, width, 3) bytes."""
    shape = pixels.shape[1:]
    return Dataset(
        name,
        "image",
        len(pixels),
        lambda i: np.ascontiguousarray(pixels[i]).tobytes(),
        lambda content: pillow("images").fromarray(np.frombuffer(content, np.uint8).reshape(shape)),
        lambda i: f"row {i}",
        labels,
    )


def texts(name: str, contents: list[str], labels: Array | None = None) -> Dataset:
    """Texts in a list."""
    return Dataset(
        name,
        "text",
        len(contents),
        lambda i: contents[i].encode(),
        bytes.decode,
        lambda i: f"row {i}",
        labels,
    )


def vectors(name: str, rows: Array, labels: Array | None) -> Dataset:
    """Rows of numbers (n, m) that are embeddings already."""
    rows = np.ascontiguousarray(validation.rows(rows, f"data {name}"), dtype=np.float32)
    return Dataset(
        name,
        "vector",
        len(rows),
        lambda i: rows[i].tobytes(),
        lambda content: np.frombuffer(content, np.float32).copy(),
        lambda i: f"row {i}",
        labels,
    )
