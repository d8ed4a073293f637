"""The one loop for many gradient-trained classifiers at once, which learn side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from dkvb._support import validation
from dkvb.benchmark.analysis.memory import pickled_bytes
from dkvb.benchmark.metrics import top_k_accuracy
from dkvb.benchmark.records import RunRecord
from dkvb.benchmark.runner import Clock, RunLog, check_stream, checked, epoch_pieces, evenly_spread
from dkvb.benchmark.streams import Stream
from dkvb.estimators.baselines.batched import Stack
from dkvb.estimators.baselines.gradient import GradientClassifier

Array = npt.NDArray[Any]

_SMALLEST = float(np.log(np.finfo(np.float64).tiny))  # log probability, as in `evaluate`


class Run(NamedTuple):
    """A classifier, not fitted yet, the stream that it learns, and how its record names it."""

    classifier: GradientClassifier
    stream: Stream
    name: str | None = None
    seed: int | None = None
    config: Mapping[str, Any] = {}  # never changed


def train_stack(
    runs: Sequence[Run],
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    at_end: bool = False,
    memory: bool = False,
    progress: bool = False,
) -> list[RunRecord]:
    """The records that `evaluate` gives for each run alone, to rounding; much faster on a GPU.

    Runs may differ in anything. Those of one architecture (the same in all settings but the random
    state, learning rate, weight decay, label smoothing and strength of consolidation) whose stages
    are of the same sizes learn side by side, group after group. Classifiers are fitted in the end.
    Rows may be tensors that lie on the device already. A record's times are its share of the
    group's, and its config says how many were `stacked`.
    """
    finished = finished_runs(
        runs,
        train,
        test,
        evaluate_every=evaluate_every,
        at_end=at_end,
        memory=memory,
        progress=progress,
    )
    records = dict(finished)
    return [records[number] for number in range(len(runs))]


def finished_runs(
    runs: Sequence[Run],
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    at_end: bool = False,
    memory: bool = False,
    progress: bool = False,
) -> Iterator[tuple[int, RunRecord]]:
    """As `train_stack`, but group by group as each is finished: a run's place and its record."""
    (X_train, y_train), (X_test, y_test) = checked("train", train), checked("test", test)
    if evaluate_every is not None:
        validation.positive_int("evaluate_every", evaluate_every)
    for run in runs:
        _check(run, y_train)
    data = _Data(X_train, y_train, X_test, y_test)
    groups: dict[Any, list[int]] = {}
    for number, (classifier, stream, *_) in enumerate(runs):
        sizes = tuple(len(stage) for stage in stream)
        groups.setdefault((classifier._architecture(), sizes), []).append(number)

    total = sum(len(runs[numbers[0]].stream) for numbers in groups.values())
    with tqdm(total=total, unit="stage", disable=not progress, leave=False) as bar:
        for numbers in groups.values():
            group = _Group([runs[number] for number in numbers], data)
            bar.set_description(f"{len(numbers)} × {group.titles[0]}")
            group.learn(evaluate_every, at_end, bar)
            yield from zip(numbers, group.records(memory), strict=True)


class _Data:
    """Rows, and once they were asked for also on a device."""

    def __init__(self, X_train: Any, y_train: Array, X_test: Any, y_test: Array) -> None:
        self._host = (X_train, X_test)
        self._placed: dict[str, tuple[Tensor, Tensor]] = {}
        self.y_train, self.y_test = y_train, y_test
        self.classes = np.unique(np.concatenate([y_train, y_test]))  # (Y,)

    def on(self, device: str) -> tuple[Tensor, Tensor]:
        """Train and test rows (n, m) float32."""
        if device not in self._placed:
            train, test = (validation.as_float32(validation.rows(X)).to(device) for X in self._host)
            self._placed[device] = train, test
        return self._placed[device]


class _Group:
    """Runs that learn side by side."""

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

    def learn(self, evaluate_every: int | None, at_end: bool, bar: Any) -> None:
        """All stages of all runs."""
        stack = Stack(self._models, self._x, self._y)
        pieces = epoch_pieces(self._epochs if self._in_epochs else None, evaluate_every)
        stages = list(zip(*(run.stream for run in self._runs), strict=True))
        for number, own_stages in enumerate(stages):
            rows = torch.from_numpy(np.stack([stage.rows for stage in own_stages]))  # (R, n)
            rows = rows.to(self._device)
            for epochs, epochs_done in pieces:
                with self._clock.measure("learn"):
                    stack.learn(rows, self._epochs if epochs is None else epochs)
                if not at_end or number + 1 == len(stages):
                    self._evaluate(number, epochs_done, rows)
            with self._clock.measure("learn"):
                for model, own in zip(self._models, rows, strict=True):
                    model._consolidate(self._x[own])
            bar.set_postfix(
                accuracy=self._logs[0].curve[-1].accuracy if self._logs[0].curve else None
            )
            bar.update()
        stack.release()

    def _evaluate(self, stage: int, epoch: int | None, rows: Tensor) -> None:
        sample = torch.from_numpy(evenly_spread(rows.shape[1], len(self._y_test)))
        self._scores = []
        for model, log, own in zip(self._models, self._logs, rows, strict=True):
            with self._clock.measure("predict"):
                scores = model._score_tensor(self._x_test)  # (n, Y)
                predicted = self._data.classes[scores.argmax(dim=1).cpu().numpy()]
            seen = own[sample.to(own.device)]
            log.add(
                stage,
                epoch,
                predicted,
                test_loss=_cross_entropy(scores, self._y_test),
                train_loss=_cross_entropy(model._score_tensor(self._x[seen]), self._y[seen]),
            )
            self._scores.append(scores)

    def records(self, memory: bool) -> list[RunRecord]:
        """A record a run."""
        share = {part: seconds / len(self._runs) for part, seconds in self._clock.seconds.items()}
        return [
            log.record(
                title,
                seed=run.seed,
                params=params,
                config={"stacked": len(self._runs), **run.config},
                top5=top_k_accuracy(self._data.y_test, scores.cpu().numpy(), self._data.classes),
                times=share,
                memory_bytes=pickled_bytes(run.classifier) if memory else None,
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
        raise ValueError("classifier: expected one that was never fitted; pass a clone of it")
    check_stream(run.stream, y_train)
    run.classifier._check_settings()


def _cross_entropy(scores: Tensor, y: Tensor) -> float:
    """The mean over rows, of scores (n, Y) and columns y (n,)."""
    own = scores.log_softmax(dim=1).gather(1, y[:, None])  # (n, 1)
    return -float(own.clamp(min=_SMALLEST).mean())
