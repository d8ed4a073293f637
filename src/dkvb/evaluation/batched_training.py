"""Batched training: many gradient-trained classifiers learn at once, and each leaves a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from dkvb._support import validation
from dkvb.baselines.batched import BatchedTrainer
from dkvb.baselines.gradient import GradientClassifier
from dkvb.evaluation.metrics import top_k_hits
from dkvb.evaluation.records import RunRecord
from dkvb.evaluation.runner import (
    Clock,
    RunLog,
    check_data,
    check_stream,
    evenly_spaced,
    split_epochs,
)
from dkvb.evaluation.size import pickled_size
from dkvb.evaluation.streams import Stream

Array = npt.NDArray[Any]

_MIN_LOG_PROBABILITY = float(np.log(np.finfo(np.float64).tiny))  # as in `evaluate`


class Run(NamedTuple):
    """An unfitted classifier, its stream, and what its record says of it."""

    classifier: GradientClassifier
    stream: Stream
    name: str | None = None
    seed: int | None = None
    config: Mapping[str, Any] = {}  # never changed


def train_batched(
    runs: Sequence[Run],
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    final_only: bool = False,
    memory: bool = False,
    progress: bool = False,
) -> list[RunRecord]:
    """Return the records that `evaluate` gives for each run alone, to rounding.

    This is much faster on a GPU. Runs may differ in anything. Those with equal architecture (all
    parameters but random state, learning rate, weight decay, label smoothing and EWC strength) and
    equal task sizes form a group that is trained together. The classifiers are fitted afterwards.

    Parameters
    ----------
    runs : sequence of Run
        Classifiers and streams.
    train, test : tuple of (X, y)
        Embeddings, which may be tensors on the device, and labels.
    evaluate_every, final_only, memory, progress
        As in `evaluate`.

    Returns
    -------
    list of RunRecord
        The times of a record are its share of the group's times. `config["batched_runs"]` is the
        size of the group.
    """
    finished = iterate_batched(
        runs,
        train,
        test,
        evaluate_every=evaluate_every,
        final_only=final_only,
        memory=memory,
        progress=progress,
    )
    records = dict(finished)
    return [records[number] for number in range(len(runs))]


def iterate_batched(
    runs: Sequence[Run],
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    final_only: bool = False,
    memory: bool = False,
    progress: bool = False,
) -> Iterator[tuple[int, RunRecord]]:
    """Yield the index and the record of each run, group by group; see `train_batched`."""
    (X_train, y_train), (X_test, y_test) = check_data("train", train), check_data("test", test)
    if evaluate_every is not None:
        validation.positive_int("evaluate_every", evaluate_every)
    for run in runs:
        _check(run, y_train)
    data = _Data(X_train, y_train, X_test, y_test)
    groups: dict[Any, list[int]] = {}
    for number, (classifier, stream, *_) in enumerate(runs):
        sizes = tuple(len(task) for task in stream)
        groups.setdefault((classifier._architecture(), sizes), []).append(number)

    total = sum(len(runs[numbers[0]].stream) for numbers in groups.values())
    with tqdm(total=total, unit="task", disable=not progress, leave=False) as bar:
        for numbers in groups.values():
            group = _Group([runs[number] for number in numbers], data)
            bar.set_description(f"{len(numbers)} × {group.titles[0]}")
            group.learn(evaluate_every, final_only, bar)
            yield from zip(numbers, group.records(memory), strict=True)


class _Data:
    """Embeddings and labels, with tensors on each device that was used."""

    def __init__(self, X_train: Any, y_train: Array, X_test: Any, y_test: Array) -> None:
        self._host = (X_train, X_test)
        self._tensors: dict[str, tuple[Tensor, Tensor]] = {}
        self.y_train, self.y_test = y_train, y_test
        self.classes = np.unique(np.concatenate([y_train, y_test]))  # (n_classes,)

    def on(self, device: str) -> tuple[Tensor, Tensor]:
        """Return training and test embeddings (n, m) float32."""
        if device not in self._tensors:
            rows = (validation.as_float32(validation.rows(X)) for X in self._host)
            train, test = (torch.from_numpy(x).to(device) for x in rows)
            self._tensors[device] = train, test
        return self._tensors[device]


class _Group:
    """Runs that are trained together."""

    def __init__(self, runs: Sequence[Run], data: _Data) -> None:
        self._runs, self._data = runs, data
        self._models = [run.classifier for run in runs]
        first = self._models[0]
        self._device, self._epochs = first.device, first.epochs
        self._in_epochs = first.learns_in_epochs
        self.titles = [run.name or type(first).__name__ for run in runs]
        self._params = [model.get_params() for model in self._models]
        self._logs = [RunLog(run.stream, data.y_test, data.classes) for run in runs]
        self._scores: list[Tensor] = []
        self._clock = Clock()
        with self._clock.measure("prepare"):
            self._x, self._x_test = data.on(self._device)
            self._y, self._y_test = (
                torch.from_numpy(np.searchsorted(data.classes, y)).to(self._device)
                for y in (data.y_train, data.y_test)
            )
            for model in self._models:
                model._begin(data.classes, self._x.shape[1])

    def learn(self, evaluate_every: int | None, final_only: bool, bar: Any) -> None:
        """Train all runs on all of their tasks."""
        trainer = BatchedTrainer(self._models, self._x, self._y)
        steps = split_epochs(self._epochs if self._in_epochs else None, evaluate_every)
        tasks_of_all = list(zip(*(run.stream for run in self._runs), strict=True))
        for number, tasks in enumerate(tasks_of_all):
            indices = torch.from_numpy(np.stack([task.indices for task in tasks]))  # (R, n)
            indices = indices.to(self._device)
            for epochs, epochs_done in steps:
                with self._clock.measure("learn"):
                    trainer.learn(indices, self._epochs if epochs is None else epochs)
                if not final_only or number + 1 == len(tasks_of_all):
                    self._evaluate(number, epochs_done, indices)
            with self._clock.measure("learn"):
                for model, task_indices in zip(self._models, indices, strict=True):
                    model._consolidate(self._x[task_indices])
            bar.set_postfix(
                accuracy=self._logs[0].curve[-1].accuracy if self._logs[0].curve else None
            )
            bar.update()
        trainer.release()

    def _evaluate(self, task: int, epoch: int | None, indices: Tensor) -> None:
        sample = torch.from_numpy(evenly_spaced(indices.shape[1], len(self._y_test)))
        self._scores = []
        for model, log, task_indices in zip(self._models, self._logs, indices, strict=True):
            with self._clock.measure("predict"):
                scores = model._score_tensor(self._x_test)  # (n, n_classes)
                predicted = self._data.classes[scores.argmax(dim=1).cpu().numpy()]
            train = task_indices[sample.to(task_indices.device)]
            log.add(
                task,
                epoch,
                predicted,
                test_loss=_cross_entropy(scores, self._y_test),
                train_loss=_cross_entropy(model._score_tensor(self._x[train]), self._y[train]),
            )
            self._scores.append(scores)

    def records(self, memory: bool) -> list[RunRecord]:
        """Return one record per run."""
        n_runs, (y, classes) = len(self._runs), (self._data.y_test, self._data.classes)
        times = {step: seconds / n_runs for step, seconds in self._clock.seconds.items()}
        return [
            log.record(
                title,
                seed=run.seed,
                params=params,
                config={"batched_runs": n_runs, **run.config},
                top5=top_k_hits(y, scores.cpu().numpy(), classes) / len(y),
                times=times,
                memory_bytes=pickled_size(run.classifier) if memory else None,
            )
            for run, title, params, log, scores in zip(
                self._runs, self.titles, self._params, self._logs, self._scores, strict=True
            )
        ]


def _check(run: Run, y_train: Array) -> None:
    if not isinstance(run.classifier, GradientClassifier):
        raise TypeError(
            "classifier: expected one that learns by gradient descent; "
            f"got {type(run.classifier).__name__}; use evaluate"
        )
    if hasattr(run.classifier, "_labels"):
        raise ValueError("classifier: expected an unfitted one; got a fitted one; pass a clone")
    check_stream(run.stream, y_train)
    run.classifier._check_settings()


def _cross_entropy(scores: Tensor, y: Tensor) -> float:
    """Return the mean cross entropy of scores (n, n_classes) and class indices y (n,)."""
    log_probability = scores.log_softmax(dim=1).gather(1, y[:, None])  # (n, 1)
    return -float(log_probability.clamp(min=_MIN_LOG_PROBABILITY).mean())
