"""The bottleneck and its baselines: scikit-learn classifiers that learn from a stream.

>>> from dkvb.estimators.registry import make_classifier
>>> make_classifier("linear", {"learning_rate": "0.01", "bias": "false"})
LinearClassifier(bias=False, learning_rate=0.01)
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkvb._support.optional import require_torch
from dkvb._support.validation import one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# A class is imported when its name is first used: none should make the others wait.
_REGISTRY = {
    "bottleneck": ("dkvb.bottleneck.classifier", "BottleneckClassifier"),
    "kernel": ("dkvb.memory", "KernelClassifier"),
    "linear": ("dkvb.baselines.linear", "LinearClassifier"),
    "mlp": ("dkvb.baselines.mlp", "MLPClassifier"),
    "sdmlp": ("dkvb.baselines.sdmlp", "SDMLPClassifier"),
    "ewc": ("dkvb.baselines.ewc", "EWCClassifier"),
    "fly": ("dkvb.baselines.fly", "FlyClassifier"),
    "prototypes": ("dkvb.baselines.prototypes", "PrototypesClassifier"),
    "slda": ("dkvb.baselines.slda", "SLDAClassifier"),
    "ranpac": ("dkvb.baselines.ranpac", "RanPACClassifier"),
    "neighbours": ("dkvb.baselines.neighbours", "NeighboursClassifier"),
}

_REGRESSORS = {"kernel-regressor": ("dkvb.memory", "KernelRegressor")}
_ESTIMATORS = {**_REGISTRY, **_REGRESSORS}  # that files name

_NEED_TORCH = ("bottleneck", "linear", "mlp", "sdmlp", "ewc")  # which learn by gradients

__all__ = [
    "classifier_class",
    "classifier_names",
    "load_classifier",
    "make_classifier",
    "registered_name",
    *(class_name for _, class_name in _REGISTRY.values()),
]


def classifier_names() -> tuple[str, ...]:
    """The names that `make_classifier` knows."""
    return tuple(_REGISTRY)


def classifier_class(name: str) -> type[Any]:
    """The class behind a name.

    >>> classifier_class("prototypes").__name__
    'PrototypesClassifier'
    """
    one_of("classifier", name, classifier_names())
    return estimator_class(name)


def estimator_names() -> tuple[str, ...]:
    """The names that files give to estimators: classifiers and regressors."""
    return tuple(_ESTIMATORS)


def estimator_class(name: str) -> type[Any]:
    """The class behind a name in a file.

    >>> estimator_class("kernel-regressor").__name__
    'KernelRegressor'
    """
    one_of("estimator", name, estimator_names())
    if name in _NEED_TORCH:
        require_torch(f"classifier {name!r}")
    module, class_name = _ESTIMATORS[name]
    cls: type[Any] = getattr(import_module(module), class_name)
    return cls


def registered_name(cls: type[Any]) -> str | None:
    """Return the name of a class, or None if it is none of dkvb.

    >>> registered_name(classifier_class("prototypes"))
    'prototypes'
    """
    for name, (module, class_name) in _ESTIMATORS.items():
        inside = cls.__module__ == module or cls.__module__.startswith(f"{module}.")
        if cls.__name__ == class_name and inside:
            return name
    return None


def make_classifier(
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    key_rows: ArrayLike | None = None,
    seed: int = 0,
    device: str = "cpu",
    epochs: int | None = None,
) -> Any:
    """A classifier by name, its parameters as values or as text ("0.01", "true", "none").

    Parameters of `fit_keys` are given beside those of the bottleneck; where both have one of a
    name, that of `fit_keys` begins with `key_`. `seed`, `device` and `epochs` reach the classifiers
    that have such a parameter, unless `params` sets it. `key_rows` are rows without labels for
    classifiers that prepare themselves from some.

    >>> make_classifier("bottleneck", {"epochs": "5", "n_codebooks": "64", "key_epochs": "2"})
    BottleneckClassifier(epochs=5, keys={'epochs': 2, 'n_codebooks': 64})
    """
    cls = classifier_class(name)
    signature = dict(inspect.signature(cls).parameters)
    params = dict(params or {})
    keys = _take_key_settings(params, signature) if name == "bottleneck" else {}
    made = {"random_state": seed, "device": device, "epochs": epochs}
    made = {key: value for key, value in made.items() if value is not None and key in signature}
    made |= _parsed_all(name, params, signature)
    if keys:
        if made.get("keys") is not None:
            raise ValueError(f"keys: expected None beside {', '.join(keys)}; got keys")
        made["keys"] = keys
    if key_rows is not None and hasattr(cls, "with_key_rows"):
        return cls.with_key_rows(key_rows, **made)
    return cls(**made)


def _take_key_settings(
    params: dict[str, Any], signature: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """Take parameters of `fit_keys` out of `params` and return them, parsed."""
    from dkvb.bottleneck.key_settings import key_parameters

    known = key_parameters()
    keys: dict[str, Any] = {}
    for given in [name for name in params if name not in signature]:
        name = given if given in known else given.removeprefix("key_")
        if name in known:
            value = params.pop(given)
            keys[name] = _parsed(given, value, known[name]) if isinstance(value, str) else value
    return keys


def _parsed_all(
    name: str, params: Mapping[str, Any], signature: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    found = {}
    for key, value in params.items():
        one_of(f"parameter of {name!r}", key, tuple(signature))
        found[key] = _parsed(key, value, signature[key]) if isinstance(value, str) else value
    return found


def load_classifier(path: str | Path, device: str = "cpu") -> Any:
    """The classifier in a file that `save` wrote, whichever it is."""
    from dkvb.estimators.serialisation import load

    return load(path, device)


def _parsed(key: str, text: str, parameter: inspect.Parameter) -> Any:
    """Text as the first type of the parameter's annotation that it can be read as."""
    types = set(re.findall(r"\w+", str(parameter.annotation)))  # "float | str" → float, str
    if text.lower() == "none" and "None" in types:
        return None
    if text.lower() in ("true", "false") and "bool" in types:
        return text.lower() == "true"
    for number in (int, float):
        if number.__name__ in types:
            try:
                return number(text)
            except ValueError:
                continue
    if types & {"str", "Literal"}:
        return text
    raise ValueError(f"{key}: expected {parameter.annotation}; got {text!r}")


def __getattr__(attribute: str) -> Any:
    for name, (_, class_name) in _REGISTRY.items():
        if attribute == class_name:
            return classifier_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
