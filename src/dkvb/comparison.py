"""A comparison: several classifiers on the same stream and files, over several seeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from dkvb import _validate, streams
from dkvb.classifiers import classifier_names, make_classifier
from dkvb.evaluate import evaluate
from dkvb.records import RunRecord

Array = npt.NDArray[Any]

ORDERS = ("class-incremental", "iid")

_REHEARSAL_ROWS = 256


class Data(NamedTuple):
    """What a comparison runs on; `keys` holds the unlabelled rows that keys are fitted to."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    keys: Array


class ClassifierSpec(NamedTuple):
    """A classifier as typed: `NAME` or `NAME:key=value,key=value`."""

    text: str
    name: str
    settings: dict[str, str]


def parse_spec(text: str) -> ClassifierSpec:
    """Read a classifier's name and its settings.

    >>> parse_spec("bottleneck:rule=sgd,n_codebooks=256").settings
    {'rule': 'sgd', 'n_codebooks': '256'}
    """
    name, colon, tail = text.partition(":")
    _validate.one_of("classifier", name, classifier_names())
    settings: dict[str, str] = {}
    for part in tail.split(",") if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value) or key in settings:
            raise ValueError(
                f"classifier: expected NAME:key=value,key=value with each key once; got {text!r}"
            )
        settings[key] = value
    return ClassifierSpec(text, name, settings)


@dataclass(frozen=True)
class Comparison:
    """Which classifiers meet which streams, and how long they train."""

    classifiers: tuple[ClassifierSpec, ...]
    seeds: tuple[int, ...] = (1,)
    orders: tuple[str, ...] = ("class-incremental",)
    classes_per_stage: int = 2
    epochs: int | None = None
    evaluate_every: int | None = None
    at_end: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        texts = [spec.text for spec in self.classifiers]
        for name, values in (("classifier", texts), ("seeds", self.seeds), ("order", self.orders)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: expected at least one and each once; got {list(values)}")
        for order in self.orders:
            _validate.one_of("order", order, ORDERS)
        for name in ("classes_per_stage", "epochs", "evaluate_every"):
            if getattr(self, name) is not None:
                _validate.positive_int(name, getattr(self, name))

    def rehearse(self, data: Data) -> None:
        """Run every classifier on a few rows for an epoch, so that a bad setting fails at once."""
        small = Data(_few(data.train), _few(data.test), _thin(data.keys))
        stream = streams.iid(small.train[1])
        for spec in self.classifiers:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few rows deserve warnings that the run will not
                try:
                    evaluate(partial(self._make_brief, spec, small.keys), stream, *small[:2])
                except (ValueError, TypeError) as error:
                    raise ValueError(f"classifier {spec.text}: {error}") from error

    def run(self, data: Data, progress: bool = False) -> Iterator[RunRecord]:
        """Yield a record a classifier, order and seed, as each is finished.

        Keys are fitted once a classifier and seed: every order starts from the same ones.
        """
        for seed in self.seeds:
            for spec in self.classifiers:
                original = _Once(partial(self._make, spec, seed, data.keys))
                for order in self.orders:
                    yield evaluate(
                        original.copy,
                        self._stream(order, data.train[1], seed),
                        data.train,
                        data.test,
                        evaluate_every=self.evaluate_every,
                        at_end=self.at_end,
                        progress=progress,
                        name=spec.text,
                        seed=seed,
                        config={"order": order, "settings": spec.settings},
                    )

    def _stream(self, order: str, y: Array, seed: int) -> streams.Stream:
        if order == "iid":
            return streams.iid(y, seed)
        return streams.class_incremental(y, self.classes_per_stage, seed)

    def _make(self, spec: ClassifierSpec, seed: int, keys: Array) -> Any:
        return make_classifier(
            spec.name,
            spec.settings,
            key_rows=keys,
            seed=seed,
            device=self.device,
            epochs=self.epochs,
        )

    def _make_brief(self, spec: ClassifierSpec, keys: Array) -> Any:
        classifier = self._make(spec, self.seeds[0], keys)
        epochs = classifier.get_params().get("epochs")
        if isinstance(epochs, int) and epochs > 1:  # a wrong one stays, to be found
            classifier.set_params(epochs=1)
        return classifier


class _Once:
    """Makes a classifier when first asked, and hands out unfitted copies that share its keys."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def copy(self) -> Any:
        self._made = self._make() if self._made is None else self._made
        return clone(self._made)


def _thin(rows: Array) -> Array:
    """At most `_REHEARSAL_ROWS` rows, evenly spread, since files are often sorted by class."""
    few = min(len(rows), _REHEARSAL_ROWS)
    return rows[np.linspace(0, len(rows) - 1, few).astype(np.int64)]


def _few(data: tuple[Array, Array]) -> tuple[Array, Array]:
    return _thin(data[0]), _thin(data[1])
