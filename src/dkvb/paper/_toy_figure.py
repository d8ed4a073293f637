"""The toy's records, and its figure drawn from them alone."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Drawing:
    """What the figure needs to know of one model; see `packed` for regions."""

    regions: list[str]  # after each stage
    pruned_regions: str
    points: list[list[list[float]]]  # of each stage [[x, y, class], …]
    keys: list[list[float]]  # [[x, y], …]; none where keys live in projected spaces
    pruned_keys: list[list[float]]


@dataclass(frozen=True)
class ToyRecord:
    """One model with one seed; one line of JSON."""

    model: str
    seed: int
    config: dict[str, Any]
    versions: dict[str, str]
    stages: list[list[int]]  # the classes of each
    accuracy_matrix: list[list[float]]  # [after stage i][on test points of stage j]
    pruned_accuracy: list[float]  # on each stage's test points, at the end
    drawing: Drawing | None  # of the first seed only


def write(path: Path, records: Iterable[ToyRecord]) -> None:
    """Write records, one line each, in place of what was there."""
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))


def read(path: Path) -> list[ToyRecord]:
    """Records back from their file."""
    records = []
    for line in path.read_text().splitlines():
        content = json.loads(line)
        drawing = content.pop("drawing")
        records.append(ToyRecord(**content, drawing=drawing and Drawing(**drawing)))
    return records


def packed(regions: npt.ArrayLike) -> str:
    """A square of classes (g, g) as a short string.

    >>> unpacked(packed([[0, 1], [2, 7]]))
    array([[0, 1],
           [2, 7]], dtype=uint8)
    """
    return b64encode(zlib.compress(np.asarray(regions, dtype=np.uint8).tobytes(), 9)).decode()


def unpacked(text: str) -> npt.NDArray[np.uint8]:
    """The square of classes (g, g) back from its string."""
    flat = np.frombuffer(zlib.decompress(b64decode(text)), dtype=np.uint8)
    side = int(len(flat) ** 0.5)
    return flat.reshape(side, side)
