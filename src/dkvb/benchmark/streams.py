"""Streams: the order in which labelled rows arrive, as stages over index arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb._support import validation

Rows = npt.NDArray[np.int64]
Labels = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a stream: which rows arrive, and the classes among them."""

    rows: Rows  # (n_stage,)
    classes: Labels  # (classes in the stage,), in the stream's order

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Stream:
    """A named sequence of stages; iterate over it, index it, take its length."""

    name: str
    stages: tuple[Stage, ...]
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __getitem__(self, position: int) -> Stage:
        return self.stages[position]


def class_incremental(y: npt.ArrayLike, classes_per_stage: int = 2, seed: int = 0) -> Stream:
    """A few classes a stage, each class in one stage only; the seed decides the order of classes.

    The order is the paper's: Python's own shuffle of the sorted classes. Where
    `classes_per_stage` does not divide the number of classes the last stage is smaller.

    >>> stream = class_incremental([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], classes_per_stage=2, seed=1)
    >>> stream.name, [stage.classes.tolist() for stage in stream]
    ('B0-Inc2', [[6, 8], [9, 7], [5, 3], [0, 4], [1, 2]])
    """
    labels = _labels(y)
    size = validation.positive_int("classes_per_stage", classes_per_stage)
    classes = np.unique(labels)
    order = list(range(len(classes)))
    random.Random(seed).shuffle(order)
    groups = [classes[order[start : start + size]] for start in range(0, len(order), size)]
    return Stream(f"B0-Inc{size}", tuple(_stage_of_classes(labels, g) for g in groups), seed)


def iid(y: npt.ArrayLike, seed: int = 0) -> Stream:
    """One stage with every row, shuffled by the seed.

    >>> stream = iid(["cat", "dog", "cat"])
    >>> stream.name, len(stream), sorted(stream[0].rows.tolist())
    ('iid', 1, [0, 1, 2])
    """
    labels = _labels(y)
    # Shuffled because files are often sorted by class, and some classifiers learn in one pass.
    rows = np.random.default_rng(seed).permutation(len(labels))
    return Stream("iid", (Stage(rows, np.unique(labels)),), seed)


def from_stages(
    y: npt.ArrayLike,
    *,
    rows: Sequence[npt.ArrayLike] | None = None,
    classes: Sequence[npt.ArrayLike] | None = None,
    name: str = "own stages",
) -> Stream:
    """A stage list of your own: either index arrays (`rows`) or lists of labels (`classes`).

    >>> y = [0, 0, 1, 1, 2]
    >>> [s.rows.tolist() for s in from_stages(y, classes=[[2, 0], [1]])]
    [[0, 1, 4], [2, 3]]
    >>> [s.classes.tolist() for s in from_stages(y, rows=[[0, 2], [1, 3, 4]])]
    [[0, 1], [0, 1, 2]]
    """
    labels = _labels(y)
    if (rows is None) == (classes is None):
        raise ValueError("from_stages: expected either rows or classes; give exactly one of them")
    if rows is not None:
        stages = tuple(_stage_of_rows(labels, r, f"rows[{i}]") for i, r in enumerate(rows))
    else:
        groups = enumerate(classes or ())
        stages = tuple(_stage_of_classes(labels, np.asarray(g), f"classes[{i}]") for i, g in groups)
    if not stages:
        raise ValueError("from_stages: expected at least one stage; got an empty list")
    return Stream(name, stages)


def _labels(y: npt.ArrayLike) -> Labels:
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"y: expected a 1-d array of at least one label; got shape {labels.shape}")
    return labels


def _stage_of_classes(y: Labels, classes: Labels, name: str = "classes") -> Stage:
    if classes.ndim != 1 or len(classes) == 0:
        raise ValueError(f"{name}: expected a list of labels; got shape {classes.shape}")
    unknown = classes[~np.isin(classes, y)]
    if len(unknown):
        raise ValueError(f"{name}: expected labels that occur in y; got {unknown.tolist()}")
    return Stage(np.flatnonzero(np.isin(y, classes)), classes)


def _stage_of_rows(y: Labels, rows: npt.ArrayLike, name: str) -> Stage:
    index = np.asarray(rows)
    if index.ndim != 1 or len(index) == 0 or index.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: expected a 1-d array of at least one row index; "
            f"got shape {index.shape} of {index.dtype}"
        )
    if index.min() < 0 or index.max() >= len(y):
        raise ValueError(
            f"{name}: expected row indices from 0 to {len(y) - 1}; "
            f"got {index.min()} to {index.max()}"
        )
    return Stage(index.astype(np.int64), np.unique(y[index]))
