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
from tqdm import tqdm

from dkvb import __version__, _validate, metrics
from dkvb.records import Evaluation, Number, RunRecord
from dkvb.streams import Stream

Array = npt.NDArray[Any]

_DECIMALS = 6  # of what goes into a record: finer than one row of a million


def evaluate(
    make_classifier: Callable[[], Any],
    stream: Stream,
    train: tuple[Any, npt.ArrayLike],
    test: tuple[Any, npt.ArrayLike],
    *,
    evaluate_every: int | None = None,
    at_end: bool = False,
    progress: bool = False,
    name: str | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> RunRecord:
    """Learn `train` = (X, y) as `stream` orders it, test on all of `test` after each stage.

    `make_classifier` returns a fresh classifier with scikit-learn's protocol: `partial_fit`, and
    `decision_function`, `predict_proba` or `predict`. It is told all classes at the start. With
    `evaluate_every` a classifier that has `epochs` is tested each so many epochs too, unless it
    says that it `learns_in_epochs` = False, and would learn its rows twice in two calls. What a
    classifier can `prepare` from embeddings alone is computed once. The record's forward
    transfer is against chance. With `at_end` nothing is tested before the last stage is over, which
    is much faster for classifiers that solve an equation when asked; then the record has the final
    accuracy, but no forgetting, transfer or average over stages.
    """
    (X_train, y_train), (X_test, y_test) = _checked("train", train), _checked("test", test)
    if max(stage.rows.max() for stage in stream) >= len(y_train):
        raise ValueError("stream: expected rows of the train set; build it from the train labels")
    if evaluate_every is not None:
        _validate.positive_int("evaluate_every", evaluate_every)
    classes = np.unique(np.concatenate([y_train, y_test]))  # (Y,)

    clock = _Clock()
    with clock.measure("keys"):
        classifier = make_classifier()
    with clock.measure("prepare"):
        X_train, X_test = _prepare(classifier, X_train), _prepare(classifier, X_test)
    params = classifier.get_params() if hasattr(classifier, "get_params") else {}
    in_epochs = getattr(classifier, "learns_in_epochs", True)
    pieces = _pieces(params.get("epochs") if in_epochs else None, evaluate_every)

    curve: list[Evaluation] = []
    after_stage: list[list[Number]] = []
    scores: Array | None = None
    title = name or type(classifier).__name__
    with tqdm(
        total=len(stream), desc=title, unit="stage", disable=not progress, leave=False
    ) as bar:
        for number, stage in enumerate(stream):
            X_stage, y_stage = X_train[stage.rows], y_train[stage.rows]
            sample = _spread(len(stage), len(y_test))
            untested = at_end and number + 1 < len(stream)
            for epochs, epochs_done in pieces:
                if epochs is not None:
                    classifier.set_params(epochs=epochs)
                with clock.measure("learn"):
                    classifier.partial_fit(X_stage, y_stage, classes=classes)
                if untested:
                    continue
                with clock.measure("predict"):
                    predicted, scores = _predict(classifier, X_test, classes)
                per_class = metrics.per_class_accuracy(y_test, predicted, classes)  # (Y,)
                point = Evaluation(
                    stage=number,
                    epoch=epochs_done,
                    accuracy=_plain(metrics.mean_per_class_accuracy(per_class)),
                    per_class=[_plain(value) for value in per_class],
                    test_loss=_loss(classifier, X_test, y_test),
                    train_loss=_loss(classifier, X_stage[sample], y_stage[sample]),
                )
                curve.append(point)
                bar.set_postfix(accuracy=point.accuracy)
            after_stage.append([None] * len(classes) if untested else curve[-1].per_class)
            bar.update()

    per_stage = np.array(after_stage, dtype=np.float64)  # (T, Y), None becomes NaN
    columns = [np.searchsorted(classes, np.unique(stage.classes)) for stage in stream]
    matrix = metrics.accuracy_matrix(per_stage, columns)  # (T, T)
    return RunRecord(
        classifier=title,
        stream=stream.name,
        seed=stream.seed if seed is None else seed,
        classes=classes.tolist(),
        stages=[stage.classes.tolist() for stage in stream],
        config={
            "params": {key: _describe(value) for key, value in params.items()},
            **(config or {}),
        },
        versions=_versions(str(params.get("device", "cpu"))),
        curve=curve,
        accuracy_matrix=[[_plain(value) for value in row] for row in matrix],
        metrics={
            "final_accuracy": curve[-1].accuracy,
            **_stream_metrics(
                matrix, [len(c) for c in columns], chance=1 / len(classes), known=not at_end
            ),
            "top5_accuracy": _top5(y_test, scores, classes),
            "test_loss": curve[-1].test_loss,
        },
        times=clock.seconds,
    )


class _Clock:
    """Adds up seconds under names."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("keys", "prepare", "learn", "predict"), 0.0)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[part] += perf_counter() - start


def _checked(name: str, data: tuple[Any, npt.ArrayLike]) -> tuple[Any, Array]:
    X, y = data[0], np.asarray(data[1])
    if y.ndim != 1 or len(y) == 0 or len(X) != len(y):
        raise ValueError(
            f"{name}: expected (X, y) with one label a row and at least one row; "
            f"got {len(X)} rows and labels of shape {y.shape}"
        )
    return X, y


def _prepare(classifier: Any, X: Any) -> Any:
    return classifier.prepare(X) if hasattr(classifier, "prepare") else X


def _pieces(epochs: int | None, evaluate_every: int | None) -> list[tuple[int | None, int | None]]:
    """A stage's learning in pieces: (epochs of this piece, epochs done after it).

    By contract of the classifiers, k calls of one epoch equal one call of k epochs.

    >>> _pieces(5, 2), _pieces(5, None), _pieces(None, 2)
    ([(2, 2), (2, 4), (1, 5)], [(5, 5)], [(None, None)])
    """
    if epochs is None:
        return [(None, None)]
    step = evaluate_every or epochs
    ends = [*range(step, epochs, step), epochs]
    return [(end - start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _predict(classifier: Any, X: Any, classes: Array) -> tuple[Array, Array | None]:
    """Predicted labels (n,), and scores (n, Y) where the classifier gives a column a class."""
    rule = getattr(classifier, "decision_function", getattr(classifier, "predict_proba", None))
    if rule is None:
        return np.asarray(classifier.predict(X)), None
    scores = np.asarray(rule(X), dtype=np.float64)
    if scores.ndim == 1:  # scikit-learn's binary exception: how far class 1 leads class 0
        scores = np.stack([np.zeros_like(scores), scores], axis=1)[:, -len(classifier.classes_) :]
    predicted = np.asarray(classifier.classes_)[scores.argmax(axis=1)]
    return predicted, scores if np.array_equal(classifier.classes_, classes) else None


def _loss(classifier: Any, X: Any, y: Array) -> Number:
    """Mean cross entropy of the predicted probabilities; None for a classifier without them."""
    if not hasattr(classifier, "predict_proba"):
        return None
    known = np.asarray(classifier.classes_)
    columns = np.minimum(np.searchsorted(known, y), len(known) - 1)
    probability = np.asarray(classifier.predict_proba(X), dtype=np.float64)  # (n, Y)
    own = np.where(known[columns] == y, probability[np.arange(len(y)), columns], 0.0)
    return _plain(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean())


def _spread(n: int, most: int) -> Array:
    """Evenly spread rows, at most so many: the train loss shall not cost more than the test loss.

    >>> _spread(10, 4), _spread(3, 4)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def _top5(y: Array, scores: Array | None, classes: Array) -> Number:
    return None if scores is None else _plain(metrics.top_k_accuracy(y, scores, classes, k=5))


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


def _versions(device: str) -> dict[str, str]:
    versions = {"dkvb": __version__, "python": platform.python_version()}
    for package, distribution in _DISTRIBUTIONS.items():
        try:
            versions[package] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    versions["platform"] = f"{platform.system()} {platform.machine()}"
    if device.startswith("cuda"):
        import torch

        device = f"{device} ({torch.cuda.get_device_name(device)})"
    return versions | {"device": device}


_DISTRIBUTIONS = {"torch": "torch", "numpy": "numpy", "sklearn": "scikit-learn"}
