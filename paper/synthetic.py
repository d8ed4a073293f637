"""Synthetic embeddings: class-conditional Gaussian mixtures of any shape.

They replace embeddings that are not available, to measure time and memory at full size. Their
accuracies are not comparable with real data. Everything made from them is marked *synthetic*.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CHUNK = 1 << 14  # rows made at a time


@dataclass(frozen=True)
class Mixture:
    """Some modes per class in few dimensions, mapped to embeddings by one random matrix.

    All mixtures of the same width share the matrix, as if made by one encoder.
    """

    n_classes: int
    width: int
    n_rows: int
    seed: int  # random seed of the classes
    sample: int = 0  # random seed of the samples
    modes: int = 2
    inner: int = 48  # dimensions that tell classes apart
    separation: float = 0.75  # of modes, in units of their standard deviation

    def labels(self) -> Array:
        """Return class indices (n,) int64, sorted, as in folders of images."""
        return np.arange(self.n_rows) * self.n_classes // self.n_rows

    def rows(self, first: int, last: int) -> Array:
        """Return rows first … last − 1, float16; `first` is a multiple of CHUNK."""
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
        """Return all rows (n, m), in memory."""
        return np.concatenate(
            [self.rows(a, min(a + CHUNK, self.n_rows)) for a in range(0, self.n_rows, CHUNK)]
        )

    def file(self, folder: Path, name: str) -> Array:
        """Return all rows (n, m) in a memory map, which is written unless it exists."""
        path, note = folder / f"{name}.npy", folder / f"{name}.json"
        wanted = json.dumps({"synthetic": True, **asdict(self)})
        if not note.exists() or note.read_text() != wanted:
            note.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            shape = (self.n_rows, self.width)
            file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
            for a in range(0, self.n_rows, CHUNK):
                file[a : a + CHUNK] = self.rows(a, min(a + CHUNK, self.n_rows))
            file.flush()
            note.write_text(wanted)  # last: a file without it is not finished
        # Copy on write: torch has no read-only tensors, and the file must not change.
        return np.lib.format.open_memmap(path, mode="c")
