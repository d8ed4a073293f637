"""A grid of runs: classifiers × seeds × orders on the same data."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from dkvb._support import validation
from dkvb._support.optional import require_torch
from dkvb.estimators.registry import classifier_class, classifier_names, make_classifier
from dkvb.estimators.serialisation import are_keys
from dkvb.evaluation import streams
from dkvb.evaluation.custom import import_custom, is_custom, make_custom
from dkvb.evaluation.jobs import Job, RunSpec
from dkvb.evaluation.records import RunRecord
from dkvb.evaluation.runner import evaluate, evenly_spaced, get_all_params, prepare

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys

Array = npt.NDArray[Any]

ORDERS = ("class-incremental", "iid")  # of the paper
ALL_ORDERS = (*ORDERS, "blurry")

_SMOKE_TEST_SAMPLES = 256
_SMOKE_TEST_SIZES = {"epochs": 1, "n_codebooks": 4, "n_features": 64}  # at most
_HASHED_ROWS = 4096  # at a time


class Data(NamedTuple):
    """Training and test data (X, y), and the unlabelled embeddings that keys are fitted to."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    keys: Array
    names: Mapping[str, str] = {}  # as records name them


class ClassifierSpec(NamedTuple):
    """A classifier as written on the command line: `NAME` or `NAME:key=value,key=value`."""

    text: str
    name: str
    settings: dict[str, Any]


def parse_spec(text: str) -> ClassifierSpec:
    """Parse the name and the parameters of a classifier.

    The name is one of the registry, or `module:Class`.

    >>> parse_spec("bottleneck:epochs=5,n_codebooks=256").settings
    {'epochs': '5', 'n_codebooks': '256'}
    >>> parse_spec("sklearn.naive_bayes:GaussianNB:var_smoothing=1e-6").name
    'sklearn.naive_bayes:GaussianNB'
    """
    name, colon, tail = text.partition(":")
    if name not in classifier_names() and is_custom(":".join(text.split(":")[:2])):
        attribute, colon, tail = tail.partition(":")
        name = f"{name}:{attribute}"
        import_custom(name)
    else:
        validation.one_of("classifier, unless module:Class", name, classifier_names())
    settings: dict[str, str] = {}
    for item in tail.split(",") if colon else ():
        key, equals, value = (text.strip() for text in item.partition("="))
        if not (key and equals and value) or key in settings:
            raise ValueError(
                f"classifier: expected NAME:key=value,key=value with each key once; got {text!r}"
            )
        settings[key] = value
    return ClassifierSpec(text, name, settings)


def make_from_spec(
    spec: ClassifierSpec,
    *,
    seed: int = 0,
    device: str = "cpu",
    epochs: int | None = None,
    key_data: Array | None = None,
) -> Any:
    """Return a new classifier; keys are fitted to the embeddings `key_data` where it has keys.

    >>> make_from_spec(parse_spec("linear:learning_rate=0.1")).learning_rate
    0.1
    """
    if is_custom(spec.name):
        return make_custom(spec.name, spec.settings, seed=seed, device=device, epochs=epochs)
    return make_classifier(
        spec.name, spec.settings, key_rows=key_data, seed=seed, device=device, epochs=epochs
    )


@dataclass(frozen=True)
class Grid:
    """All combinations of classifiers, seeds and orders, with one schedule.

    Parameters
    ----------
    classifiers : tuple of ClassifierSpec
        Classifiers to train.
    seeds : tuple of int, default=(1,)
        Random seeds of the classifiers and of the streams.
    orders : tuple of str, default=("class-incremental",)
        Orders of the training data: "class-incremental", "iid" or "blurry".
    classes_per_task : int, default=2
        Number of new classes per task of class-incremental and blurry streams.
    blurry_percent : int, default=10
        Share of each class's samples that arrive in other tasks of blurry streams, in percent.
    imbalance_factor : float, optional
        Make the training data long-tailed: size of the largest class divided by the smallest.
    epochs : int, optional
        Epochs per task of classifiers that train in epochs; their own default otherwise.
    evaluate_every : int, optional
        Evaluate every so many epochs, and not only after each task.
    final_only : bool, default=False
        Evaluate after the last task only.
    memory : bool, default=False
        Whether to record the size of each classifier.
    device : str, default="cpu"
        Device to compute on.
    """

    classifiers: tuple[ClassifierSpec, ...]
    seeds: tuple[int, ...] = (1,)
    orders: tuple[str, ...] = ("class-incremental",)
    classes_per_task: int = 2
    blurry_percent: int = 10
    imbalance_factor: float | None = None
    epochs: int | None = None
    evaluate_every: int | None = None
    final_only: bool = False
    memory: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        texts = [spec.text for spec in self.classifiers]
        for name, values in (("classifier", texts), ("seeds", self.seeds), ("order", self.orders)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: expected at least one and each once; got {list(values)}")
        for order in self.orders:
            validation.one_of("order", order, ALL_ORDERS)
        for name in ("classes_per_task", "epochs", "evaluate_every"):
            if getattr(self, name) is not None:
                validation.positive_int(name, getattr(self, name))
        if self.imbalance_factor is not None:
            validation.real("imbalance_factor", self.imbalance_factor, low=1)
        if not (isinstance(self.blurry_percent, int) and 0 <= self.blurry_percent <= 100):
            raise ValueError(
                "blurry_percent: expected a whole number from 0 to 100; "
                f"got {self.blurry_percent!r}"
            )

    def smoke_test(self, data: Data) -> None:
        """Train every classifier briefly on few samples, so that bad parameters fail at once."""
        small = Data(_few(data.train), _few(data.test), _thin(data.keys), data.names)
        stream, n_classes = streams.iid(small.train[1]), len(np.unique(small.train[1]))
        if "class-incremental" in self.orders and n_classes > 1:
            # Two tasks: learning more than once takes further steps, and compiles them.
            stream = streams.class_incremental(small.train[1], -(-n_classes // 2))
        for spec in self.classifiers:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few samples cause warnings that the run will not
                try:
                    evaluate(partial(self._make_small, spec, small.keys), stream, *small[:2])
                except (ValueError, TypeError) as error:
                    raise ValueError(f"classifier {spec.text}: {error}") from error

    def run(self, data: Data, progress: bool = False) -> Iterator[RunRecord]:
        """Yield one record per classifier, order and seed, as each is finished."""
        for job in self.make_jobs(data):
            for _, record in job.run(job.specs, progress):
                yield record

    def make_jobs(self, data: Data) -> list[Job]:
        """Return the runs as jobs for `run_missing`: one per classifier and seed, with all orders.

        On a GPU, all runs of gradient-trained classifiers form one job of batched training.
        """
        device_data = DeviceData(data, self.device)
        batched = [spec for spec in self.classifiers if self._is_batched(spec)]
        single = [
            Job(
                [self._run_spec(spec, order, seed, device_data) for order in self.orders],
                partial(self._run, spec, seed, device_data),
            )
            for seed in self.seeds
            for spec in self.classifiers
            if spec not in batched
        ]
        if not batched:
            return single
        runs = {
            self._run_spec(spec, order, seed, device_data): spec
            for spec in batched
            for order in self.orders
            for seed in self.seeds
        }
        return [*single, Job(list(runs), partial(self._run_batched, runs, device_data))]

    def _is_batched(self, spec: ClassifierSpec) -> bool:
        if self.device == "cpu":  # there is little to gain, and a killed process would lose more
            return False
        from dkvb.baselines.gradient import GradientClassifier

        return issubclass(_class_of(spec), GradientClassifier)

    def _run_spec(self, spec: ClassifierSpec, order: str, seed: int, data: DeviceData) -> RunSpec:
        parameters = {
            "name": spec.name,
            "settings": spec.settings,
            "order": order,
            "seed": seed,
            "classes_per_task": None if order == "iid" else self.classes_per_task,
            "epochs": self.epochs,
            "evaluate_every": self.evaluate_every,
            "final_only": self.final_only,
            "memory": self.memory,
            "data": data.names,
            "contents": data.contents,
        }
        # Only where they have an effect, so that other runs keep their ids.
        if order == "blurry":
            parameters["blurry_percent"] = self.blurry_percent
        if self.imbalance_factor is not None:
            parameters["imbalance_factor"] = self.imbalance_factor
        return RunSpec(spec.text, parameters)

    def _run(
        self,
        spec: ClassifierSpec,
        seed: int,
        data: DeviceData,
        run_specs: Sequence[RunSpec],
        progress: bool,
    ) -> Iterator[tuple[RunSpec, RunRecord]]:
        for run_spec in run_specs:
            train, test = data.inputs_for(spec)
            record = evaluate(
                partial(self._make_with_keys, spec, seed, data),
                self._stream(run_spec.parameters["order"], train[1], seed),
                train,
                test,
                evaluate_every=self.evaluate_every,
                final_only=self.final_only,
                memory=self.memory,
                progress=progress,
                name=spec.text,
                seed=seed,
                config=_config(run_spec),
                prepare=data.prepare,
            )
            yield run_spec, record

    def _run_batched(
        self,
        specs: Mapping[RunSpec, ClassifierSpec],
        data: DeviceData,
        run_specs: Sequence[RunSpec],
        progress: bool,
    ) -> Iterator[tuple[RunSpec, RunRecord]]:
        from dkvb.evaluation.batched_training import Run, train_batched

        (x, y), (x_test, y_test) = data.train, data.test
        runs = [
            Run(
                self._make(specs[run_spec], run_spec.parameters["seed"], None),
                self._stream(run_spec.parameters["order"], y, run_spec.parameters["seed"]),
                run_spec.classifier,
                run_spec.parameters["seed"],
                _config(run_spec),
            )
            for run_spec in run_specs
        ]
        records = train_batched(
            runs,
            (data.on_device(x), y),
            (data.on_device(x_test), y_test),
            evaluate_every=self.evaluate_every,
            final_only=self.final_only,
            memory=self.memory,
            progress=progress,
        )
        return iter(list(zip(run_specs, records, strict=True)))

    def _make_with_keys(self, spec: ClassifierSpec, seed: int, data: DeviceData) -> Any:
        if hasattr(_class_of(spec), "fit_keys"):
            return set_shared_keys(self._make(spec, seed, None), data, seed)
        return self._make(spec, seed, data.keys)

    def _stream(self, order: str, y: Array, seed: int) -> streams.Stream:
        if self.imbalance_factor is None:
            return self._balanced_stream(order, y, seed)
        indices = streams.long_tailed(y, self.imbalance_factor, seed)
        stream = self._balanced_stream(order, y[indices], seed)
        return streams.select(stream, indices, f"imbalance-{self.imbalance_factor:g}")

    def _balanced_stream(self, order: str, y: Array, seed: int) -> streams.Stream:
        if order == "iid":
            return streams.iid(y, seed)
        if order == "blurry":
            return streams.blurry(y, self.classes_per_task, self.blurry_percent, seed)
        return streams.class_incremental(y, self.classes_per_task, seed)

    def _make(self, spec: ClassifierSpec, seed: int, keys: Array | None) -> Any:
        return make_from_spec(
            spec,
            seed=seed,
            device=self.device,
            epochs=self.epochs,
            key_data=keys,
        )

    def _make_small(self, spec: ClassifierSpec, keys: Array) -> Any:
        if is_custom(spec.name):
            return self._make(spec, self.seeds[0], None)
        params = get_all_params(self._make(spec, self.seeds[0], None))
        if "keys" in params:
            sizes = params.pop("keys") or {}
            if spec.name == "bottleneck":  # sizes of keys are parameters of the bottleneck alone
                params |= {"n_codebooks": None, **{_key_name(n): v for n, v in sizes.items()}}
        for name, small in _SMOKE_TEST_SIZES.items():
            value = params.get(name, small)
            if value is None or (isinstance(value, int) and value > small):  # wrong ones stay
                params[name] = small
        return self._make(spec._replace(settings=params), self.seeds[0], keys)


def _key_name(name: str) -> str:
    """Return what `make_classifier` calls a parameter of `fit_keys`."""
    return f"key_{name}" if name in ("epochs", "batch_size") else name


def _class_of(spec: ClassifierSpec) -> type[Any]:
    return import_custom(spec.name) if is_custom(spec.name) else classifier_class(spec.name)


def _config(spec: RunSpec) -> dict[str, Any]:
    """Return what a record says of its run."""
    return {name: spec.parameters[name] for name in ("order", "settings", "data")}


class DeviceData:
    """Data with device tensors and prepared batches, made on first use and shared by runs."""

    def __init__(self, data: Data, device: str) -> None:
        self._device = device
        self._tensors: dict[int, Any] = {}
        self._prepared: tuple[Any, dict[int, Any]] = (None, {})
        self.train, self.test, self.keys = data.train, data.test, data.keys
        self.names = dict(data.names)

    @cached_property
    def contents(self) -> dict[str, str]:
        """Digests of training, test and key data."""
        return {
            "train": fingerprint(*self.train),
            "test": fingerprint(*self.test),
            "keys": fingerprint(self.keys),
        }

    def inputs_for(self, spec: ClassifierSpec) -> tuple[tuple[Any, Array], tuple[Any, Array]]:
        """Return training and test data, as tensors for a classifier that reads codes only."""
        train, test = self.train, self.test
        if spec.name != "bottleneck":
            return train, test
        return (self.on_device(train[0]), train[1]), (self.on_device(test[0]), test[1])

    def on_device(self, X: Array) -> Any:
        """Return embeddings as a tensor on the device; on the CPU, as they are."""
        if self._device == "cpu":
            return X
        if id(X) not in self._tensors:
            torch = require_torch(f"device {self._device!r}")
            self._tensors[id(X)] = torch.from_numpy(validation.as_float32(X)).to(self._device)
        return self._tensors[id(X)]

    def prepare(self, classifier: Any, X: Any) -> Any:
        """Return what a classifier prepares from X, once for all runs with equal keys."""
        arrays = (self.train[0], self.test[0], *self._tensors.values())
        keys = getattr(classifier, "keys", None) if hasattr(classifier, "batch") else None
        if keys is None or not are_keys(keys) or not any(X is array for array in arrays):
            return prepare(classifier, X)
        address = keys.fingerprint
        if self._prepared[0] != address:
            self._prepared = (address, {})  # frees the batches of the previous keys first
        batches = self._prepared[1]
        if id(X) not in batches:
            batches[id(X)] = prepare(classifier, X)
        return batches[id(X)]


# Keys by key data, seed, device and sizes: experiments share many of them.
_FITTED: dict[tuple[Any, ...], Keys] = {}
_MAX_FITTED = 12


def set_shared_keys(classifier: Any, data: DeviceData, seed: int) -> Any:
    """Give the classifier keys that it shares with others of equal sizes, key data and seed."""
    settings = sorted(classifier.key_settings().items())
    address = (data.contents["keys"], seed, str(classifier.device), *settings)
    if address not in _FITTED:
        _FITTED[address] = classifier.fit_keys(data.on_device(data.keys))
        while len(_FITTED) > _MAX_FITTED:
            _FITTED.pop(next(iter(_FITTED)))
    return classifier.set_params(keys=_FITTED[address])


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch and BLAS to one thread: with small steps, two mostly wait for each other."""
    with threadpool_limits(1), _one_thread_of_torch():
        yield


@contextmanager
def _one_thread_of_torch() -> Iterator[None]:
    try:
        import torch
    except ImportError:  # nothing to limit
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fingerprint(X: Array, y: Array | None = None) -> str:
    """Return a digest of all embeddings and labels, which is part of the identity of a run.

    >>> fingerprint(np.zeros((3, 2))) == fingerprint(np.ones((3, 2)))
    False
    """
    digest = hashlib.blake2b(repr((X.shape, str(X.dtype))).encode(), digest_size=8)
    for first in range(0, len(X), _HASHED_ROWS):  # a memory map is not read whole
        digest.update(np.ascontiguousarray(X[first : first + _HASHED_ROWS]).tobytes())
    if y is not None:
        y = y.astype(str) if y.dtype == object else y  # objects are pointers
        digest.update(np.ascontiguousarray(y).tobytes())
    return digest.hexdigest()


def _thin(array: Array) -> Array:
    """Return few rows, evenly spaced since files are often sorted by class."""
    return array[evenly_spaced(len(array), _SMOKE_TEST_SAMPLES)]


def _few(data: tuple[Array, Array]) -> tuple[Array, Array]:
    return _thin(data[0]), _thin(data[1])
