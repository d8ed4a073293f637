"""The bottleneck and its rivals: scikit-learn classifiers that learn from a stream.

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

from dkvb._support.validation import one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# A class is imported when its name is first used: none should make the others wait.
_REGISTRY = {
    "bottleneck": "BottleneckClassifier",
    "linear": "LinearClassifier",
    "mlp": "MLPClassifier",
    "sdmlp": "SDMLPClassifier",
    "ewc": "EWCClassifier",
    "fly": "FlyClassifier",
    "prototypes": "PrototypesClassifier",
    "slda": "SLDAClassifier",
    "ranpac": "RanPACClassifier",
    "neighbours": "NeighboursClassifier",
}

__all__ = [
    "classifier_class",
    "classifier_names",
    "load_classifier",
    "make_classifier",
    *_REGISTRY.values(),
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
    found: type[Any] = getattr(import_module(_module_of(name)), _REGISTRY[name])
    return found


def _module_of(name: str) -> str:
    package = "estimators" if name == "bottleneck" else "estimators.baselines"
    return f"dkvb.{package}.{name}"


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

    `seed`, `device` and `epochs` reach the classifiers that have such a parameter, unless `params`
    sets it. `key_rows` are rows without labels for those that prepare themselves from some.
    """
    cls = classifier_class(name)
    signature = inspect.signature(cls).parameters
    settings: dict[str, Any] = {}
    for key, value in (params or {}).items():
        one_of(f"parameter of {name!r}", key, tuple(signature))
        settings[key] = _parsed(key, value, signature[key]) if isinstance(value, str) else value
    for key, value in {"random_state": seed, "device": device, "epochs": epochs}.items():
        if key in signature and value is not None:
            settings.setdefault(key, value)
    if key_rows is not None and hasattr(cls, "with_key_rows"):
        return cls.with_key_rows(key_rows, **settings)
    return cls(**settings)


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
    for name, class_name in _REGISTRY.items():
        if attribute == class_name:
            return classifier_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
