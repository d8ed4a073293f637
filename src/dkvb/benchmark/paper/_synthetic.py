"""Embeddings that were made up: class-conditional Gaussian mixtures of any shape.

They stand in for embeddings that are not at hand, to show time and memory at full size. Their
accuracies say nothing of real data, and whatever is made of them says *synthetic*.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb._support import process_group

Array = npt.NDArray[Any]

CHUNK = 1 << 14  # rows made at a time


@dataclass(frozen=True)
class Mixture:
    """Some modes a class in a space of few dimensions, seen through one random map: as of one
    encoder, which all mixtures of the same width share."""

    n_classes: int
    width: int
    n_rows: int
    seed: int  # of the classes
    sample: int = 0  # of the rows
    modes: int = 2
    inner: int = 48  # dimensions that tell classes apart
    separation: float = 0.75  # of modes, in units of the spread around them

    def labels(self) -> Array:
        """(n,) int64, sorted, as files of images in folders are."""
        return np.arange(self.n_rows) * self.n_classes // self.n_rows

    def rows(self, first: int, last: int) -> Array:
        """Rows first … last − 1 of a chunk that begins at a multiple of CHUNK: (n, m) float16."""
        space = np.random.default_rng(0)
        mixing = space.standard_normal((self.inner, self.width), dtype=np.float32)
        classes = np.random.default_rng([self.seed, 1])
        shape = (self.n_classes, self.modes, self.inner)
        centres = self.separation * classes.standard_normal(shape, dtype=np.float32)
        rng = np.random.default_rng([self.seed, 2, self.sample, first])
        y = self.labels()[first:last]
        z = centres[y, rng.integers(self.modes, size=len(y))]
        z += rng.standard_normal(z.shape, dtype=np.float32)
        x = z @ (mixing / self.inner**0.5)
        x += 0.3 * rng.standard_normal(x.shape, dtype=np.float32)
        rows: Array = x.astype(np.float16)
        return rows

    def array(self) -> Array:
        """All rows (n, m), in memory."""
        return np.concatenate(
            [self.rows(a, min(a + CHUNK, self.n_rows)) for a in range(0, self.n_rows, CHUNK)]
        )

    def file(self, folder: Path, name: str) -> Array:
        """All rows (n, m) in a memory map, written now unless they are there already."""
        path, note = folder / f"{name}.npy", folder / f"{name}.json"
        wanted = json.dumps({"synthetic": True, **asdict(self)})
        if process_group.rank() == 0 and (not note.exists() or note.read_text() != wanted):
            note.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            shape = (self.n_rows, self.width)
            file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
            for a in range(0, self.n_rows, CHUNK):
                file[a : a + CHUNK] = self.rows(a, min(a + CHUNK, self.n_rows))
            file.flush()
            note.write_text(wanted)  # last: a file without it is not finished
        process_group.all_reduce_int(0)  # all wait until it is there
        # Copy on write: torch knows no read-only tensors, and nothing may change the file.
        return np.lib.format.open_memmap(path, mode="c")
