"""A comparison: several classifiers on the same stream and files, over several seeds."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from dkvb._support import process_group, validation
from dkvb.benchmark import streams
from dkvb.benchmark.records import Cell, Job, RunRecord
from dkvb.benchmark.runner import evaluate, prepare
from dkvb.bottleneck import Keys
from dkvb.estimators.registry import classifier_class, classifier_names, make_classifier

Array = npt.NDArray[Any]

ORDERS = ("class-incremental", "iid")

_REHEARSAL_ROWS = 256
_BRIEF = {"epochs": 1, "n_codebooks": 4, "n_features": 64}  # of a rehearsal, at most
_HASHED_ROWS = 4096  # at a time


class Data(NamedTuple):
    """What a comparison runs on; `keys` holds the unlabelled rows that keys are fitted to."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    keys: Array
    names: Mapping[str, str] = {}  # what records shall call them


class ClassifierSpec(NamedTuple):
    """A classifier as typed: `NAME` or `NAME:key=value,key=value`."""

    text: str
    name: str
    settings: dict[str, Any]


def parse_spec(text: str) -> ClassifierSpec:
    """Read a classifier's name and its settings.

    >>> parse_spec("bottleneck:rule=sgd,n_codebooks=256").settings
    {'rule': 'sgd', 'n_codebooks': '256'}
    """
    name, colon, tail = text.partition(":")
    validation.one_of("classifier", name, classifier_names())
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
    memory: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        texts = [spec.text for spec in self.classifiers]
        for name, values in (("classifier", texts), ("seeds", self.seeds), ("order", self.orders)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: expected at least one and each once; got {list(values)}")
        for order in self.orders:
            validation.one_of("order", order, ORDERS)
        for name in ("classes_per_stage", "epochs", "evaluate_every"):
            if getattr(self, name) is not None:
                validation.positive_int(name, getattr(self, name))

    def rehearse(self, data: Data) -> None:
        """Run every classifier on a few rows for an epoch, so that a bad setting fails at once."""
        small = Data(_few(data.train), _few(data.test), _thin(data.keys), data.names)
        stream = streams.iid(small.train[1])
        for spec in self.classifiers:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few rows deserve warnings that the run will not
                try:
                    evaluate(partial(self._make_brief, spec, small.keys), stream, *small[:2])
                except (ValueError, TypeError) as error:
                    raise ValueError(f"classifier {spec.text}: {error}") from error

    def run(self, data: Data, progress: bool = False) -> Iterator[RunRecord]:
        """Yield a record a classifier, order and seed, as each is finished."""
        for job in self.jobs(data):
            for _, record in job.run(job.cells, progress):
                yield record

    def jobs(self, data: Data) -> list[Job]:
        """The runs as jobs for `records.finish`: one a classifier and seed, with every order.

        On a GPU, all runs of classifiers that learn by gradient descent are one job, side by side.
        """
        placed = Placed(data, self.device)
        stacked = [spec for spec in self.classifiers if self._stacks(spec)]
        apart = [
            Job(
                [self._cell(spec, order, seed, placed) for order in self.orders],
                partial(self._run, spec, seed, placed),
            )
            for seed in self.seeds
            for spec in self.classifiers
            if spec not in stacked
        ]
        if not stacked:
            return apart
        runs = {
            self._cell(spec, order, seed, placed): spec
            for spec in stacked
            for order in self.orders
            for seed in self.seeds
        }
        return [*apart, Job(list(runs), partial(self._run_stacked, runs, placed))]

    def _stacks(self, spec: ClassifierSpec) -> bool:
        from dkvb.estimators.baselines.gradient import GradientClassifier

        # On a CPU there is little to win, and a killed run would lose more.
        return self.device != "cpu" and issubclass(classifier_class(spec.name), GradientClassifier)

    def _cell(self, spec: ClassifierSpec, order: str, seed: int, data: Placed) -> Cell:
        what = {
            "name": spec.name,
            "settings": spec.settings,
            "order": order,
            "seed": seed,
            "classes_per_stage": None if order == "iid" else self.classes_per_stage,
            "epochs": self.epochs,
            "evaluate_every": self.evaluate_every,
            "at_end": self.at_end,
            "memory": self.memory,
            "data": data.names,
            "contents": data.contents,
        }
        return Cell(spec.text, what)

    def _run(
        self,
        spec: ClassifierSpec,
        seed: int,
        data: Placed,
        cells: Sequence[Cell],
        progress: bool,
    ) -> Iterator[tuple[Cell, RunRecord]]:
        for cell in cells:
            train, test = data.rows_for(spec)
            record = evaluate(
                partial(self._make_with_keys, spec, seed, data),
                self._stream(cell.what["order"], train[1], seed),
                train,
                test,
                evaluate_every=self.evaluate_every,
                at_end=self.at_end,
                memory=self.memory,
                progress=progress,
                name=spec.text,
                seed=seed,
                config=_config(cell),
                prepare=data.prepare,
            )
            yield cell, record

    def _run_stacked(
        self,
        specs: Mapping[Cell, ClassifierSpec],
        data: Placed,
        cells: Sequence[Cell],
        progress: bool,
    ) -> Iterator[tuple[Cell, RunRecord]]:
        from dkvb.benchmark.batched_training import Run, train_stack

        (x, y), (x_test, y_test) = data.train, data.test
        runs = [
            Run(
                self._make(specs[cell], cell.what["seed"], None),
                self._stream(cell.what["order"], y, cell.what["seed"]),
                cell.classifier,
                cell.what["seed"],
                _config(cell),
            )
            for cell in cells
        ]
        records = train_stack(
            runs,
            (data.on_device(x), y),
            (data.on_device(x_test), y_test),
            evaluate_every=self.evaluate_every,
            at_end=self.at_end,
            memory=self.memory,
            progress=progress,
        )
        return iter(list(zip(cells, records, strict=True)))

    def _make_with_keys(self, spec: ClassifierSpec, seed: int, data: Placed) -> Any:
        if hasattr(classifier_class(spec.name), "fit_keys"):
            return with_shared_keys(self._make(spec, seed, None), data, seed)
        return self._make(spec, seed, data.keys)

    def _stream(self, order: str, y: Array, seed: int) -> streams.Stream:
        if order == "iid":
            return streams.iid(y, seed)
        return streams.class_incremental(y, self.classes_per_stage, seed)

    def _make(self, spec: ClassifierSpec, seed: int, keys: Array | None) -> Any:
        return make_classifier(
            spec.name,
            spec.settings,
            key_rows=None if keys is None else keys[process_group.shard(len(keys))],
            seed=seed,
            device=self.device,
            epochs=self.epochs,
        )

    def _make_brief(self, spec: ClassifierSpec, keys: Array) -> Any:
        params = self._make(spec, self.seeds[0], None).get_params()
        for name, brief in _BRIEF.items():
            own = params.get(name, brief)
            if own is None or (isinstance(own, int) and own > brief):  # a wrong one stays
                params[name] = brief
        return self._make(spec._replace(settings=params), self.seeds[0], keys)


def _config(cell: Cell) -> dict[str, Any]:
    """What a record says of its cell."""
    return {name: cell.what[name] for name in ("order", "settings", "data")}


class Placed:
    """Data, and once it was asked for also on the device and as codes, which runs share."""

    def __init__(self, data: Data, device: str) -> None:
        self._device = device
        self._tensors: dict[int, Any] = {}
        self._prepared: tuple[Any, dict[int, Any]] = (None, {})
        self.train, self.test, self.keys = data.train, data.test, data.keys
        self.names = dict(data.names)

    @cached_property
    def contents(self) -> dict[str, str]:
        """Digests of train, test and key rows."""
        return {
            "train": fingerprint(*self.train),
            "test": fingerprint(*self.test),
            "keys": fingerprint(self.keys),
        }

    def rows_for(self, spec: ClassifierSpec) -> tuple[tuple[Any, Array], tuple[Any, Array]]:
        """Train and test as this classifier takes them: as tensors if it reads codes alone."""
        train, test = self.train, self.test
        if spec.name != "bottleneck" or spec.settings.get("rule") == "least_squares":
            return train, test
        return (self.on_device(train[0]), train[1]), (self.on_device(test[0]), test[1])

    def on_device(self, X: Array) -> Any:
        if self._device == "cpu":
            return X
        if id(X) not in self._tensors:
            self._tensors[id(X)] = validation.as_float32(X).to(self._device)
        return self._tensors[id(X)]

    def prepare(self, classifier: Any, X: Any) -> Any:
        """What a classifier prepares from rows, once for all runs with the same rule and keys."""
        own = (self.train[0], self.test[0], *self._tensors.values())
        keys = getattr(classifier, "keys", None)
        if keys is None or not any(X is rows for rows in own):
            return prepare(classifier, X)
        address = (classifier.rule, keys.fingerprint)
        if self._prepared[0] != address:
            self._prepared = (address, {})  # those of the keys before make room first
        found = self._prepared[1]
        if id(X) not in found:
            found[id(X)] = prepare(classifier, X)
        return found[id(X)]


# Keys, by the rows they were fitted to, seed, device and sizes: experiments share many.
_FITTED: dict[tuple[Any, ...], Keys] = {}
_MOST_FITTED = 12


def with_shared_keys(classifier: Any, data: Placed, seed: int) -> Any:
    """The classifier with keys, which it shares with all others of the same sizes, rows and
    seed."""
    settings = sorted(classifier.key_settings().items())
    address = (data.contents["keys"], seed, str(classifier.device), *settings)
    if address not in _FITTED:
        own = process_group.shard(len(data.keys))
        _FITTED[address] = classifier.fit_keys(data.on_device(data.keys)[own])
        while len(_FITTED) > _MOST_FITTED:
            _FITTED.pop(next(iter(_FITTED)))
    return classifier.set_params(keys=_FITTED[address])


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch: with small steps, two mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fingerprint(x: Array, y: Array | None = None) -> str:
    """A digest of all embeddings and labels: of other numbers nothing may be taken as done.

    >>> fingerprint(np.zeros((3, 2))) == fingerprint(np.ones((3, 2)))
    False
    """
    digest = hashlib.blake2b(repr((x.shape, str(x.dtype))).encode(), digest_size=8)
    for first in range(0, len(x), _HASHED_ROWS):  # a memory map is not read whole
        digest.update(np.ascontiguousarray(x[first : first + _HASHED_ROWS]).tobytes())
    if y is not None:
        y = y.astype(str) if y.dtype == object else y  # objects are pointers
        digest.update(np.ascontiguousarray(y).tobytes())
    return digest.hexdigest()


def _thin(rows: Array) -> Array:
    """At most `_REHEARSAL_ROWS` rows, evenly spread, since files are often sorted by class."""
    few = min(len(rows), _REHEARSAL_ROWS)
    return rows[np.linspace(0, len(rows) - 1, few).astype(np.int64)]


def _few(data: tuple[Array, Array]) -> tuple[Array, Array]:
    return _thin(data[0]), _thin(data[1])
