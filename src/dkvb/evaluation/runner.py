"""Train a classifier on a stream, task by task, and evaluate it on all classes after each."""

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
from sklearn.exceptions import NotFittedError
from sklearn.metrics import confusion_matrix
from tqdm import tqdm

from dkvb import __version__
from dkvb._support import validation
from dkvb._support.optional import require_torch
from dkvb.evaluation import metrics
from dkvb.evaluation.records import Evaluation, Number, RunRecord
from dkvb.evaluation.scoring import mean_cross_entropy, score
from dkvb.evaluation.size import pickled_size
from dkvb.evaluation.streams import Stream

Array = npt.NDArray[Any]

_MAX_CONFUSION_CLASSES = 20  # larger confusion matrices are not recorded
_DECIMALS = 6  # in records: finer than one sample of a million


def prepare(classifier: Any, X: Any) -> Any:
    """Return a batch whose codes are searched once, if the classifier has keys, else X."""
    if not hasattr(classifier, "batch"):
        return X
    try:
        batch = classifier.batch(X)
    except NotFittedError:  # keys will be fitted to the first task
        return X
    if hasattr(classifier, "key_settings"):
        batch.codes  # noqa: B018  # searched now, once for all tasks
    return batch


def get_epochs(classifier: Any) -> int | None:
    """Return the epochs per call of `partial_fit`, or None if a classifier has no epochs."""
    epochs: int | None = get_all_params(classifier).get("epochs")
    return epochs


def get_all_params(classifier: Any) -> dict[str, Any]:
    """Return the parameters of a classifier, none where it does not tell them."""
    return dict(classifier.get_params(deep=False)) if hasattr(classifier, "get_params") else {}


def set_epochs(classifier: Any, epochs: int) -> None:
    """Set the epochs of the next call of `partial_fit`."""
    classifier.set_params(epochs=epochs)


def evaluate(
    make_classifier: Callable[[], Any],
    stream: Stream,
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    final_only: bool = False,
    memory: bool = False,
    progress: bool = False,
    name: str | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    prepare: Callable[[Any, Any], Any] = prepare,
) -> RunRecord:
    """Train a classifier on a stream, evaluate it on the whole test set and return the record.

    The classifier is told all classes in the first call of `partial_fit`. A classifier with `tune`
    is tuned once, after the last task. If its `boundary` is
    "told", `end_task` is called after each task. Forward transfer is measured against chance.

    Parameters
    ----------
    make_classifier : callable
        Returns a new classifier with `partial_fit`, and `decision_function`, `predict_proba` or
        `predict`. For a stream of one task `fit` is enough.
    stream : Stream
        The order of the training samples.
    train, test : tuple of (X, y)
        Embeddings and labels.
    evaluate_every : int, optional
        Evaluate every so many epochs, and not only after each task. It has an effect on
        classifiers with `epochs` for which k calls of one epoch equal one call of k epochs
        (`learns_in_epochs`).
    final_only : bool, default=False
        Evaluate after the last task only. This is much faster for classifiers that solve an
        equation before they predict. The record then has no forgetting, transfer or average
        incremental accuracy.
    memory : bool, default=False
        Whether to record the size of the pickled classifier after the last task.
    progress : bool, default=False
        Whether to show a progress bar.
    name : str, optional
        Name of the classifier in the record; its class name by default.
    seed : int, optional
        Seed in the record; that of the stream by default.
    config : mapping, optional
        Added to the configuration in the record.
    prepare : callable, optional
        `prepare(classifier, X)` returns what is computed once from X; runs that share it pass
        their own.

    Returns
    -------
    RunRecord
    """
    (X_train, y_train), (X_test, y_test) = check_data("train", train), check_data("test", test)
    check_stream(stream, y_train)
    if evaluate_every is not None:
        validation.positive_int("evaluate_every", evaluate_every)
    classes = np.unique(np.concatenate([y_train, y_test]))  # (n_classes,)

    clock = Clock()
    with clock.measure("keys"):
        classifier = make_classifier()
    if not hasattr(classifier, "partial_fit") and len(stream) > 1:
        raise TypeError(
            f"classifier: expected one with partial_fit for a stream of {len(stream)} tasks; "
            f"got {type(classifier).__name__} without it; evaluate it on i.i.d. data"
        )
    with clock.measure("prepare"):
        X_train, X_test = prepare(classifier, X_train), prepare(classifier, X_test)
    params = get_all_params(classifier)
    in_epochs = getattr(classifier, "learns_in_epochs", True)
    steps = split_epochs(get_epochs(classifier) if in_epochs else None, evaluate_every)

    log = RunLog(stream, y_test, classes)
    title = name or type(classifier).__name__
    with tqdm(total=len(stream), desc=title, unit="task", disable=not progress, leave=False) as bar:
        for number, task in enumerate(stream):
            X_task, y_task = X_train[task.indices], y_train[task.indices]
            sample = evenly_spaced(len(task), len(y_test))
            X_sample, y_sample = X_task[sample], y_task[sample]
            skip = final_only and number + 1 < len(stream)
            for epochs, epochs_done in steps:
                if epochs is not None:
                    set_epochs(classifier, epochs)
                with clock.measure("learn"):
                    _fit(classifier, X_task, y_task, classes)
                    if number + 1 == len(stream) and hasattr(classifier, "tune"):
                        classifier.tune()  # settings are a function of the whole stream
                if skip:
                    continue
                with clock.measure("predict"):
                    scores = score(classifier, X_test, y_test, classes)
                log.add(
                    number,
                    epochs_done,
                    scores.predicted,
                    test_loss=scores.loss,
                    train_loss=mean_cross_entropy(classifier, X_sample, y_sample),
                )
                bar.set_postfix(accuracy=log.curve[-1].accuracy)
            if getattr(classifier, "boundary", None) == "told":
                with clock.measure("learn"):
                    classifier.end_task(X_task)
            bar.update()
    return log.record(
        title,
        seed=seed,
        params=params,
        config={**_key_sizes(classifier), **(config or {})},
        top5=scores.top5,
        times=clock.seconds,
        memory_bytes=pickled_size(classifier) if memory else None,
    )


def _fit(classifier: Any, X: Any, y: Array, classes: Array) -> None:
    if hasattr(classifier, "partial_fit"):
        classifier.partial_fit(X, y, classes=classes)
    else:
        classifier.fit(X, y)


class RunLog:
    """Collects the evaluations of one run and makes its record."""

    def __init__(self, stream: Stream, y_test: Array, classes: Array) -> None:
        self.curve: list[Evaluation] = []
        self._stream, self._y_test, self._classes = stream, y_test, classes
        self._task_classes = [np.searchsorted(classes, np.unique(task.classes)) for task in stream]

    def add(
        self,
        task: int,
        epoch: int | None,
        predicted: Array,
        *,
        test_loss: Number,
        train_loss: Number,
    ) -> None:
        """Add an evaluation: the labels predicted (n,) for the test set, and the losses."""
        per_class = metrics.per_class_accuracy(self._y_test, predicted, self._classes)
        seen = np.unique(np.concatenate(self._task_classes[: task + 1]))
        self.curve.append(
            Evaluation(
                task=task,
                epoch=epoch,
                accuracy=_plain(metrics.mean_per_class_accuracy(per_class)),
                per_class=[_plain(value) for value in per_class],
                test_loss=None if test_loss is None else _plain(test_loss),
                train_loss=None if train_loss is None else _plain(train_loss),
                seen_accuracy=_plain(metrics.mean_per_class_accuracy(per_class[seen])),
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
        """Return the record; `top5` is the top-5 accuracy of the last evaluation."""
        stream, classes = self._stream, self._classes
        after_task = {point.task: point.per_class for point in self.curve}  # the last of each
        missing: list[Number] = [None] * len(classes)
        per_task = np.array(  # (n_tasks, n_classes), None becomes NaN
            [after_task.get(task, missing) for task in range(len(stream))], dtype=np.float64
        )
        matrix = metrics.accuracy_matrix(per_task, self._task_classes)  # (n_tasks, n_tasks)
        measured = _stream_metrics(
            matrix,
            [len(indices) for indices in self._task_classes],
            chance=1 / len(classes),
            is_complete=len(after_task) == len(stream),
        )
        return RunRecord(
            classifier=title,
            stream=stream.name,
            seed=stream.seed if seed is None else seed,
            classes=classes.tolist(),
            tasks=[task.classes.tolist() for task in stream],
            config={"params": {key: _describe(value) for key, value in params.items()}, **config},
            versions=collect_versions(str(params.get("device", "cpu"))),
            curve=self.curve,
            accuracy_matrix=[
                [_plain(value) for value in row] if task in after_task else []
                for task, row in enumerate(matrix)
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
    """Adds up the seconds of each step of a run."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("keys", "prepare", "learn", "predict"), 0.0)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Add the time spent in the context to a step."""
        start = perf_counter()
        yield
        self.seconds[step] += perf_counter() - start


def check_stream(stream: Stream, y_train: Array) -> None:
    """Raise ValueError if a stream has indices beyond the training data."""
    if max(task.indices.max() for task in stream) >= len(y_train):
        raise ValueError(
            "stream: expected indices of the training data; got larger ones; build it from the "
            "training labels"
        )


def check_data(name: str, data: tuple[Any, npt.ArrayLike]) -> tuple[Any, Array]:
    """Return X and y (n,), or raise ValueError if their lengths differ or are zero."""
    X, y = data[0], np.asarray(data[1])
    if y.ndim != 1 or len(y) == 0 or len(X) != len(y):
        raise ValueError(
            f"{name}: expected (X, y) with one label per sample and at least one sample; "
            f"got {len(X)} samples and labels of shape {y.shape}"
        )
    return X, y


def split_epochs(
    epochs: int | None, evaluate_every: int | None
) -> list[tuple[int | None, int | None]]:
    """Split the epochs of a task at its evaluations: (epochs of the step, epochs done after it).

    By contract of the classifiers, k calls of one epoch equal one call of k epochs.

    >>> split_epochs(5, 2), split_epochs(5, None), split_epochs(None, 2)
    ([(2, 2), (2, 4), (1, 5)], [(5, 5)], [(None, None)])
    """
    if epochs is None:
        return [(None, None)]
    validation.positive_int("epochs", epochs)
    step = evaluate_every or epochs
    ends = [*range(step, epochs, step), epochs]
    return [(end - start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _key_sizes(classifier: Any) -> dict[str, Any]:
    """Return the sizes of the fitted keys, which may be smaller than requested."""
    keys = getattr(classifier, "keys_", None)
    if keys is None:
        return {}
    sizes = {name: getattr(keys, name) for name in ("n_codebooks", "n_pairs", "key_dim")}
    method = {name: keys.settings.get(name) for name in ("method", "epochs", "conditioning")}
    report = {"distinct": _plain(keys.report.distinct), "used": _plain(keys.report.used)}
    return {"keys": {**sizes, **method, **report, "fingerprint": keys.fingerprint}}


def evenly_spaced(n: int, max_size: int) -> Array:
    """Return at most `max_size` evenly spaced indices below n.

    >>> evenly_spaced(10, 4), evenly_spaced(3, 4)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    return np.linspace(0, n - 1, min(n, max_size)).astype(np.int64)


def _confusion(y: Array, predicted: Array, classes: Array) -> dict[str, Any]:
    """Return the final confusion matrix, unless it is trivial or too large for a record."""
    if not 1 < len(classes) <= _MAX_CONFUSION_CLASSES:
        return {}
    return {"confusion": confusion_matrix(y, predicted, labels=classes).tolist()}


def _stream_metrics(
    matrix: Array, sizes: list[int], chance: float, is_complete: bool
) -> dict[str, Number]:
    values = {
        "average_incremental_accuracy": metrics.average_incremental_accuracy(matrix, sizes),
        "forgetting": metrics.forgetting(matrix),
        "backward_transfer": metrics.backward_transfer(matrix),
        "forward_transfer": metrics.forward_transfer(matrix, np.full(len(matrix), chance)),
    }
    return {key: _plain(value) if is_complete else None for key, value in values.items()}


def _plain(value: float) -> Number:
    return None if math.isnan(value) else round(float(value), _DECIMALS)


def _describe(value: Any) -> Any:
    """Return a parameter as plain types; objects by fingerprint, or else by class name."""
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


def collect_versions(device: str) -> dict[str, str]:
    """Return the versions of packages, the platform and the device."""
    versions = {"dkvb": __version__, "python": platform.python_version()}
    for package, distribution in _DISTRIBUTIONS.items():
        try:
            versions[package] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    versions["platform"] = f"{platform.system()} {platform.machine()}"
    if device.startswith("cuda"):
        cuda = require_torch(f"device {device!r}").cuda
        device = f"{device} ({cuda.get_device_name(device)})"
    return versions | {"device": device}


_DISTRIBUTIONS = {"torch": "torch", "numpy": "numpy", "sklearn": "scikit-learn"}
