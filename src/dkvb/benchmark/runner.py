"""The one loop: a classifier learns a stream stage by stage, tested on everything after each."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from dkvb import __version__
from dkvb._support import process_group, validation
from dkvb.benchmark import metrics
from dkvb.benchmark.analysis.memory import pickled_bytes
from dkvb.benchmark.records import Evaluation, Number, RunRecord
from dkvb.benchmark.sharding import Share
from dkvb.benchmark.streams import Stream

Array = npt.NDArray[Any]

_CONFUSED_CLASSES = 20  # at most, for a confusion matrix in a record
_DECIMALS = 6  # of what goes into a record: finer than one row of a million


def prepare(classifier: Any, X: Any) -> Any:
    """What a classifier can compute once from embeddings alone; they themselves, if nothing."""
    return classifier.prepare(X) if hasattr(classifier, "prepare") else X


def evaluate(
    make_classifier: Callable[[], Any],
    stream: Stream,
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    at_end: bool = False,
    memory: bool = False,
    progress: bool = False,
    name: str | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    prepare: Callable[[Any, Any], Any] = prepare,
) -> RunRecord:
    """Learn `train` = (X, y) as `stream` orders it, test on all of `test` after each stage.

    `make_classifier` returns a fresh classifier with scikit-learn's protocol: `partial_fit`, and
    `decision_function`, `predict_proba` or `predict`. It is told all classes at the start. With
    `evaluate_every` a classifier that has `epochs` is tested each so many epochs too, unless it
    says that it `learns_in_epochs` = False, and would learn its rows twice in two calls. What a
    classifier can `prepare` from embeddings alone is computed once; runs that share it bring their
    own `prepare`. One that wants to be told where a task ends (`boundary` is "told") is told so
    after each stage. The record's forward transfer is against chance. With `at_end` nothing is
    tested before the last stage is over, which is much faster for classifiers that solve an
    equation when asked; then the record has the final accuracy, but no forgetting, transfer or
    average over stages. With `memory` the record says how many bytes a file of the classifier would
    hold at the end.
    """
    (X_train, y_train), (X_test, y_test) = checked("train", train), checked("test", test)
    check_stream(stream, y_train)
    if evaluate_every is not None:
        validation.positive_int("evaluate_every", evaluate_every)
    classes = np.unique(np.concatenate([y_train, y_test]))  # (Y,)

    clock = Clock()
    with clock.measure("keys"):
        classifier = make_classifier()
    share = Share(classifier, stream, len(y_test))
    with clock.measure("prepare"):
        X_train = prepare(classifier, share.of_train(X_train))
        X_test = prepare(classifier, share.of_test(X_test))
    y_own = share.of_train(y_train)
    params = classifier.get_params() if hasattr(classifier, "get_params") else {}
    in_epochs = getattr(classifier, "learns_in_epochs", True)
    pieces = epoch_pieces(params.get("epochs") if in_epochs else None, evaluate_every)

    log = RunLog(stream, y_test, classes)
    title = name or type(classifier).__name__
    with tqdm(
        total=len(stream), desc=title, unit="stage", disable=not progress, leave=False
    ) as bar:
        for number, stage in enumerate(stream):
            rows = share.stages[number]
            X_stage, y_stage = X_train[rows], y_own[rows]
            sample = share.of_stage(evenly_spread(len(stage), len(y_test)), len(stage))
            untested = at_end and number + 1 < len(stream)
            for epochs, epochs_done in pieces:
                if epochs is not None:
                    classifier.set_params(epochs=epochs)
                with clock.measure("learn"):
                    classifier.partial_fit(X_stage, y_stage, classes=classes)
                if untested:
                    continue
                with clock.measure("predict"):
                    tested = share.test(classifier, X_test, share.of_test(y_test), classes)
                log.add(
                    number,
                    epochs_done,
                    tested.predicted,
                    test_loss=tested.loss,
                    train_loss=share.loss(classifier, X_stage[sample], y_stage[sample]),
                )
                bar.set_postfix(accuracy=log.curve[-1].accuracy)
            if getattr(classifier, "boundary", None) == "told":
                with clock.measure("learn"):
                    classifier.end_task(X_stage)
            bar.update()
    return log.record(
        title,
        seed=seed,
        params=params,
        config={**_sizes_of_keys(classifier), **(config or {})},
        top5=tested.top5,
        times=clock.seconds,
        memory_bytes=pickled_bytes(classifier) if memory else None,
    )


class RunLog:
    """Evaluations of one run as they come, and the record that they make."""

    def __init__(self, stream: Stream, y_test: Array, classes: Array) -> None:
        self.curve: list[Evaluation] = []
        self._stream, self._y_test, self._classes = stream, y_test, classes

    def add(
        self,
        stage: int,
        epoch: int | None,
        predicted: Array,
        *,
        test_loss: Number,
        train_loss: Number,
    ) -> None:
        """Note the labels predicted (n,) for the test rows, and the losses where there are any."""
        per_class = metrics.per_class_accuracy(self._y_test, predicted, self._classes)  # (Y,)
        self.curve.append(
            Evaluation(
                stage=stage,
                epoch=epoch,
                accuracy=_plain(metrics.mean_per_class_accuracy(per_class)),
                per_class=[_plain(value) for value in per_class],
                test_loss=None if test_loss is None else _plain(test_loss),
                train_loss=None if train_loss is None else _plain(train_loss),
            )
        )
        self._predicted = predicted

    def record(
        self,
        title: str,
        *,
        seed: int | None,
        params: Mapping[str, Any],
        config: Mapping[str, Any],
        top5: Number,
        times: Mapping[str, float],
        memory_bytes: int | None = None,
    ) -> RunRecord:
        """The record; `top5` is the accuracy of the last evaluation."""
        stream, classes = self._stream, self._classes
        after_stage = {point.stage: point.per_class for point in self.curve}  # the last of each
        untested: list[Number] = [None] * len(classes)
        per_stage = np.array(  # (T, Y), None becomes NaN
            [after_stage.get(stage, untested) for stage in range(len(stream))], dtype=np.float64
        )
        columns = [np.searchsorted(classes, np.unique(stage.classes)) for stage in stream]
        matrix = metrics.accuracy_matrix(per_stage, columns)  # (T, T)
        measured = _stream_metrics(
            matrix,
            [len(c) for c in columns],
            chance=1 / len(classes),
            known=len(after_stage) == len(stream),
        )
        return RunRecord(
            classifier=title,
            stream=stream.name,
            seed=stream.seed if seed is None else seed,
            classes=classes.tolist(),
            stages=[stage.classes.tolist() for stage in stream],
            config={"params": {key: _describe(value) for key, value in params.items()}, **config},
            versions=versions(str(params.get("device", "cpu"))),
            curve=self.curve,
            accuracy_matrix=[
                [_plain(value) for value in row] if stage in after_stage else []
                for stage, row in enumerate(matrix)
            ],
            metrics={
                "final_accuracy": self.curve[-1].accuracy,
                **measured,
                "top5_accuracy": None if top5 is None else _plain(top5),
                "test_loss": self.curve[-1].test_loss,
                **({} if memory_bytes is None else {"memory_bytes": memory_bytes}),
            },
            times=dict(times),
            extra=_confusion(self._y_test, self._predicted, classes),
        )


class Clock:
    """Adds up seconds under names."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("keys", "prepare", "learn", "predict"), 0.0)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[part] += perf_counter() - start


def check_stream(stream: Stream, y_train: Array) -> None:
    """Raise for a stream over other rows than those of the train set."""
    if max(stage.rows.max() for stage in stream) >= len(y_train):
        raise ValueError("stream: expected rows of the train set; build it from the train labels")


def checked(name: str, data: tuple[Any, npt.ArrayLike]) -> tuple[Any, Array]:
    """Rows and labels (n,), or an error that names them."""
    X, y = data[0], np.asarray(data[1])
    if y.ndim != 1 or len(y) == 0 or len(X) != len(y):
        raise ValueError(
            f"{name}: expected (X, y) with one label a row and at least one row; "
            f"got {len(X)} rows and labels of shape {y.shape}"
        )
    return X, y


def epoch_pieces(
    epochs: int | None, evaluate_every: int | None
) -> list[tuple[int | None, int | None]]:
    """A stage's learning in pieces: (epochs of this piece, epochs done after it).

    By contract of the classifiers, k calls of one epoch equal one call of k epochs.

    >>> epoch_pieces(5, 2), epoch_pieces(5, None), epoch_pieces(None, 2)
    ([(2, 2), (2, 4), (1, 5)], [(5, 5)], [(None, None)])
    """
    if epochs is None:
        return [(None, None)]
    validation.positive_int("epochs", epochs)
    step = evaluate_every or epochs
    ends = [*range(step, epochs, step), epochs]
    return [(end - start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _sizes_of_keys(classifier: Any) -> dict[str, Any]:
    """What the keys really are, where there are keys: they may be fewer than was asked for."""
    if not hasattr(classifier, "generations_"):
        return {}
    keys = classifier.generations_[-1]
    sizes = {name: getattr(keys, name) for name in ("n_codebooks", "n_pairs", "key_dim")}
    if not getattr(classifier, "splits_rows", True):  # processes hold some codebooks each
        sizes["n_codebooks"] = process_group.all_reduce_int(keys.n_codebooks)
    method = {name: keys.settings.get(name) for name in ("method", "epochs", "conditioning")}
    report = {"distinct": _plain(keys.report.distinct), "used": _plain(keys.report.used)}
    return {"keys": {**sizes, **method, **report, "fingerprint": keys.fingerprint}}


def evenly_spread(n: int, most: int) -> Array:
    """Evenly spread rows, at most so many: the train loss shall not cost more than the test loss.

    >>> evenly_spread(10, 4), evenly_spread(3, 4)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def _confusion(y: Array, predicted: Array, classes: Array) -> dict[str, Any]:
    """The confusion matrix at the end, unless it is larger than a record should be."""
    if len(classes) > _CONFUSED_CLASSES:
        return {}
    return {"confusion": metrics.confusion_matrix(y, predicted, classes).tolist()}


def _stream_metrics(
    matrix: Array, sizes: list[int], chance: float, known: bool
) -> dict[str, Number]:
    values = {
        "average_incremental_accuracy": metrics.average_incremental_accuracy(matrix, sizes),
        "forgetting": metrics.forgetting(matrix),
        "backward_transfer": metrics.backward_transfer(matrix),
        "forward_transfer": metrics.forward_transfer(matrix, np.full(len(matrix), chance)),
    }
    return {key: _plain(value) if known else None for key, value in values.items()}


def _plain(value: float) -> Number:
    return None if math.isnan(value) else round(float(value), _DECIMALS)


def _describe(value: Any) -> Any:
    """A setting as JSON can hold it; an object by its fingerprint, or else by its kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, list | tuple):
        return [_describe(item) for item in value]
    fingerprint = getattr(value, "fingerprint", None)
    return f"{type(value).__name__} {fingerprint}" if fingerprint else type(value).__name__


def versions(device: str) -> dict[str, str]:
    """What ran: packages, platform and device."""
    versions = {"dkvb": __version__, "python": platform.python_version()}
    for package, distribution in _DISTRIBUTIONS.items():
        try:
            versions[package] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    versions["platform"] = f"{platform.system()} {platform.machine()}"
    if device.startswith("cuda"):
        device = f"{device} ({torch.cuda.get_device_name(device)})"
    return versions | {"device": device}


_DISTRIBUTIONS = {"torch": "torch", "numpy": "numpy", "sklearn": "scikit-learn"}
