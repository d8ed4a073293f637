"""Labelled embeddings for benchmarks: read from files, or made where there are none or too few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, N_CLASSES = 2048, 100
RANK = 64  # directions in which made-up rows of a class vary
BLOCK = 4096
SHARE = 0.5  # of the difference of two rows that is added to a third
BASIS_SEED, FIRST_SEED = 1, 1000

F32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Rows:
    """Embeddings (n, m) and labels (n,)."""

    X: F32
    y: NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, which: Any) -> Rows:
        return Rows(self.X[which], self.y[which])

    def first_of_each(self, most: Callable[[int], int]) -> Rows:
        """The first rows of each class, as many as `most` says of its place among the sorted."""
        chosen = [
            np.flatnonzero(self.y == label)[: most(place)]
            for place, label in enumerate(np.unique(self.y))
        ]
        return self[np.sort(np.concatenate(chosen))]


def read(path: Path, split: str = "train") -> Rows:
    """The rows of one .npz file, or of all files of a split in a folder."""
    files = sorted(path.glob(f"{split}*.npz")) if path.is_dir() else [path]
    if not files:
        raise SystemExit(f"--data: expected {split}.npz, or {split}-0.npz, …, in {path}; got none")
    parts = [_of_file(one) for one in files]
    return Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def read_unlabelled(path: Path) -> F32:
    """The embeddings of one .npz file."""
    with np.load(path, allow_pickle=False) as file:
        return _decoded(file)


def _of_file(path: Path) -> tuple[F32, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as file:
        return _decoded(file), file["y"] if "y" in file else file["labels"]


def _decoded(file: Any) -> F32:
    """Embeddings x (n, m) as they are; or codes (n, m) of uint8, for (codes / 255)² · scale, or of
    int8, for codes / 127 · scale."""
    if "codes" not in file:
        return np.asarray(file["x"], np.float32)
    codes, scale = file["codes"], file["scale"].astype(np.float32)
    if codes.dtype == np.uint8:
        return np.asarray(np.square(codes.astype(np.float32) / 255) * scale, np.float32)
    return np.asarray(codes.astype(np.float32) / 127 * scale, np.float32)


class Source:
    """As many rows as are asked for: those given as far as they go, then others like them.

    What is made beyond is a given row and half of the difference of two others of its class, cut
    off at zero where no given embedding is negative: it varies as the rows of its class do. Without
    given rows, classes are made up: a centre, and directions in which its rows vary, fewer and
    fewer.
    """

    def __init__(self, given: Rows | None, width: int = WIDTH, n_classes: int = N_CLASSES) -> None:
        self._given, self._n_classes = given, n_classes
        if given is None:
            rng = np.random.default_rng(BASIS_SEED)
            scales = np.arange(1, RANK + 1, dtype=np.float32)[:, None] ** -0.5
            self._centres = rng.standard_normal((n_classes, width), np.float32)
            self._axes = scales * rng.standard_normal((RANK, width), np.float32)
            self.width, self.n_given = width, 0
            return
        self.width, self.n_given = given.X.shape[1], len(given)
        self._labels, self._of_label = np.unique(given.y, return_inverse=True)
        self._members = [np.flatnonzero(self._of_label == i) for i in range(len(self._labels))]
        self._positive = bool((given.X >= 0).all())

    def block(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop`, the same whenever they are asked for in the same blocks."""
        n_real = max(0, min(stop, self.n_given) - start)
        made = self._made(stop - start - n_real, FIRST_SEED + start)
        if not n_real:
            return made
        assert self._given is not None
        real = self._given[start : start + n_real]
        return Rows(np.concatenate([real.X, made.X]), np.concatenate([real.y, made.y]))

    def write(self, path: Path, n: int) -> NDArray[Any]:
        """Write the first n rows to an .npy file, block by block; returns their labels."""
        file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, self.width))
        labels = []
        for start in range(0, n, BLOCK):
            part = self.block(start, min(start + BLOCK, n))
            file[start : start + len(part)] = part.X
            labels.append(part.y)
        file.flush()
        return np.concatenate(labels)

    def _made(self, n: int, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        if self._given is None:
            y = rng.integers(self._n_classes, size=n)
            X = self._centres[y] + 2 * rng.standard_normal((n, RANK), np.float32) @ self._axes
            X += rng.standard_normal((n, self.width), np.float32)
            return Rows(np.maximum(X, 0, out=X), y)
        first = rng.integers(self.n_given, size=n)
        of_label = self._of_label[first]
        sizes = np.array([len(members) for members in self._members])[of_label]
        others = np.array(
            [
                self._members[label][(rng.random(2) * size).astype(int)]
                for label, size in zip(of_label.tolist(), sizes.tolist(), strict=True)
            ],
            dtype=np.int64,
        ).reshape(n, 2)
        given = self._given.X
        X = given[first] + np.float32(SHARE) * (given[others[:, 0]] - given[others[:, 1]])
        return Rows(np.maximum(X, 0, out=X) if self._positive else X, self._labels[of_label])
