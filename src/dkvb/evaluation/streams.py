"""Streams: the order in which labelled samples arrive, as tasks over index arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dkvb._support import validation

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream: the samples that arrive, and their classes."""

    indices: Indices  # (n_task,)
    classes: Labels  # (n_classes of the task,), in the stream's order

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, eq=False)
class Stream:
    """A named sequence of tasks. It can be iterated, indexed and has a length."""

    name: str
    tasks: tuple[Task, ...]
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, position: int) -> Task:
        return self.tasks[position]


def class_incremental(y: npt.ArrayLike, classes_per_task: int = 2, seed: int = 0) -> Stream:
    """Return a stream in which every class belongs to one task.

    The classes are ordered by Python's shuffle of the sorted classes, as in the paper. The last
    task is smaller if `classes_per_task` does not divide the number of classes. The stream is named
    as in the literature: "B0-Inc2" starts with no base classes and adds two per task.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    classes_per_task : int, default=2
        Number of new classes in each task.
    seed : int, default=0
        Random seed of the class order.

    Examples
    --------
    >>> stream = class_incremental([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], classes_per_task=2, seed=1)
    >>> stream.name, [task.classes.tolist() for task in stream]
    ('B0-Inc2', [[6, 8], [9, 7], [5, 3], [0, 4], [1, 2]])
    """
    labels = _check_labels(y)
    size = validation.positive_int("classes_per_task", classes_per_task)
    groups = _shuffled_groups(np.unique(labels), size, seed)
    return Stream(f"B0-Inc{size}", tuple(_task_of_classes(labels, g) for g in groups), seed)


def iid(y: npt.ArrayLike, seed: int = 0) -> Stream:
    """Return a stream of one task with all samples, shuffled by the seed.

    >>> stream = iid(["cat", "dog", "cat"])
    >>> stream.name, len(stream), sorted(stream[0].indices.tolist())
    ('iid', 1, [0, 1, 2])
    """
    labels = _check_labels(y)
    # Shuffled because files are often sorted by class, and some classifiers learn in one pass.
    indices = np.random.default_rng(seed).permutation(len(labels))
    return Stream("iid", (Task(indices, np.unique(labels)),), seed)


def blurry(y: npt.ArrayLike, classes_per_task: int = 2, percent: int = 10, seed: int = 0) -> Stream:
    """Return a class-incremental stream with blurred task boundaries ("blurry-M").

    Every task has major classes, those of `class_incremental` with the same seed. `percent` of the
    samples of each class are drawn out and spread evenly over the other tasks, where the class is a
    minor class (Bang et al., 2021: "Rainbow Memory").

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    classes_per_task : int, default=2
        Number of major classes in each task.
    percent : int, default=10
        Share M of each class's samples that arrive in other tasks, in percent, from 0 to 100.
    seed : int, default=0
        Random seed of the class order and of the samples.

    Examples
    --------
    >>> stream = blurry([0] * 10 + [1] * 10, classes_per_task=1, percent=20, seed=0)
    >>> stream.name, [len(task) for task in stream]
    ('blurry-20 B0-Inc1', [10, 10])
    """
    labels = _check_labels(y)
    if not (isinstance(percent, int) and 0 <= percent <= 100):
        raise ValueError(f"percent: expected a whole number from 0 to 100; got {percent!r}")
    base = class_incremental(labels, classes_per_task, seed)
    rng = np.random.default_rng(seed)
    batches: list[list[Indices]] = [[] for _ in base]
    for number, task in enumerate(base):
        others = [other for other in range(len(base)) if other != number]
        for label in task.classes:
            indices = rng.permutation(np.flatnonzero(labels == label))
            n_minor = round(len(indices) * percent / 100) if others else 0
            batches[number].append(indices[n_minor:])
            for other, part in zip(
                rng.permutation(others),
                np.array_split(indices[:n_minor], len(others) or 1),
                strict=False,
            ):
                batches[other].append(part)
    tasks = []
    for task, parts in zip(base, batches, strict=True):
        indices = np.sort(np.concatenate(parts))
        minor = np.setdiff1d(labels[indices], task.classes)
        present = task.classes[np.isin(task.classes, labels[indices])]
        tasks.append(Task(indices, np.concatenate([present, minor])))
    name = f"blurry-{percent} {base.name}"
    return Stream(name, tuple(task for task in tasks if len(task)), seed)


def long_tailed(y: npt.ArrayLike, imbalance_factor: float, seed: int = 0) -> Indices:
    """Return the indices of a long-tailed subset, sorted.

    The number of samples decays exponentially from the first class to the last, as in the
    long-tailed CIFAR data sets (Cui et al., 2019): the largest class keeps all of its samples and
    the smallest keeps 1 / `imbalance_factor` of them, at least one. The order of the classes is
    that of `class_incremental` with the same seed.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    imbalance_factor : float
        Size of the largest class divided by the size of the smallest, at least 1.
    seed : int, default=0
        Random seed of the class order and of the samples.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2], 100)
    >>> np.bincount(y[long_tailed(y, imbalance_factor=10, seed=0)]).tolist()
    [100, 10, 32]
    """
    labels = _check_labels(y)
    factor = validation.real("imbalance_factor", imbalance_factor, low=1)
    classes = np.unique(labels)
    order = [group[0] for group in _shuffled_groups(classes, 1, seed)]
    rng = np.random.default_rng(seed)
    kept = []
    for position, label in enumerate(order):
        share = factor ** (-position / max(1, len(order) - 1))
        indices = rng.permutation(np.flatnonzero(labels == label))
        kept.append(indices[: max(1, round(share * len(indices)))])
    return np.sort(np.concatenate(kept))


def select(stream: Stream, indices: Indices, name: str) -> Stream:
    """Return a stream over a subset as a stream over all samples.

    `stream` was made from `y[indices]`; the result has indices into `y`. `name` is appended to the
    name of the stream.

    >>> y = np.array([0, 0, 1, 1])
    >>> subset = select(iid(y[[0, 3]]), np.array([0, 3]), "two")
    >>> subset.name, sorted(subset[0].indices.tolist())
    ('iid two', [0, 3])
    """
    tasks = tuple(Task(indices[task.indices], task.classes) for task in stream)
    return Stream(f"{stream.name} {name}", tasks, stream.seed)


def from_tasks(
    y: npt.ArrayLike,
    *,
    indices: Sequence[npt.ArrayLike] | None = None,
    classes: Sequence[npt.ArrayLike] | None = None,
    name: str = "custom",
) -> Stream:
    """Return a stream with the given tasks, either index arrays or lists of labels.

    >>> y = [0, 0, 1, 1, 2]
    >>> [task.indices.tolist() for task in from_tasks(y, classes=[[2, 0], [1]])]
    [[0, 1, 4], [2, 3]]
    >>> [task.classes.tolist() for task in from_tasks(y, indices=[[0, 2], [1, 3, 4]])]
    [[0, 1], [0, 1, 2]]
    """
    labels = _check_labels(y)
    if (indices is None) == (classes is None):
        raise ValueError("from_tasks: expected either indices or classes; give exactly one of them")
    if indices is not None:
        tasks = tuple(_task_of_indices(labels, r, f"indices[{i}]") for i, r in enumerate(indices))
    else:
        groups = enumerate(classes or ())
        tasks = tuple(_task_of_classes(labels, np.asarray(g), f"classes[{i}]") for i, g in groups)
    if not tasks:
        raise ValueError("from_tasks: expected at least one task; got an empty list")
    return Stream(name, tasks)


def _shuffled_groups(classes: Labels, size: int, seed: int) -> list[Labels]:
    order = list(range(len(classes)))
    random.Random(seed).shuffle(order)
    return [classes[order[start : start + size]] for start in range(0, len(order), size)]


def _check_labels(y: npt.ArrayLike) -> Labels:
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"y: expected a 1-d array of at least one label; got shape {labels.shape}")
    return labels


def _task_of_classes(y: Labels, classes: Labels, name: str = "classes") -> Task:
    if classes.ndim != 1 or len(classes) == 0:
        raise ValueError(f"{name}: expected a list of labels; got shape {classes.shape}")
    unknown = classes[~np.isin(classes, y)]
    if len(unknown):
        raise ValueError(f"{name}: expected labels that occur in y; got {unknown.tolist()}")
    return Task(np.flatnonzero(np.isin(y, classes)), classes)


def _task_of_indices(y: Labels, indices: npt.ArrayLike, name: str) -> Task:
    index = np.asarray(indices)
    if index.ndim != 1 or len(index) == 0 or index.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: expected a 1-d array of at least one index; "
            f"got shape {index.shape} of {index.dtype}"
        )
    if index.min() < 0 or index.max() >= len(y):
        raise ValueError(
            f"{name}: expected indices from 0 to {len(y) - 1}; got {index.min()} to {index.max()}"
        )
    return Task(index.astype(np.int64), np.unique(y[index]))
