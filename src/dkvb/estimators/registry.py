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

from dkvb._support.validation import one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# A class is imported when its name is first used: none should make the others wait.
_REGISTRY = {
    "bottleneck": "BottleneckClassifier",
    "kernel": "KernelClassifier",
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
    package = "estimators" if name in ("bottleneck", "kernel") else "baselines"
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

    Parameters of the bottleneck's rule, and of `fit_keys`, are given beside those of the
    classifier: `{"rule": "counts", "pseudocount": "0.02", "n_codebooks": "64"}`. `seed`, `device`
    and `epochs` reach the classifiers that have such a parameter, unless `params` sets it.
    `key_rows` are rows without labels for those that prepare themselves from some.

    >>> make_classifier("bottleneck", {"pseudocount": "0.02", "n_codebooks": "64"})
    BottleneckClassifier(keys={'n_codebooks': 64}, rule=Counts(pseudocount=0.02))
    """
    cls = classifier_class(name)
    signature = _parameters(cls)
    params = dict(params or {})
    usual = {"random_state": seed, "device": device, "epochs": epochs}
    usual = {key: value for key, value in usual.items() if value is not None}
    if name == "bottleneck":
        made = _routed(params, usual, signature)
    else:
        made = _parsed_all(name, params, signature)
        made = {key: value for key, value in usual.items() if key in signature} | made
    if key_rows is not None and hasattr(cls, "with_key_rows"):
        return cls.with_key_rows(key_rows, **made)
    return cls(**made)


def _parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(cls).parameters
    return {key: p for key, p in found.items() if p.kind is not p.VAR_KEYWORD}


def _parsed_all(
    name: str, params: Mapping[str, Any], signature: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    found = {}
    for key, value in params.items():
        one_of(f"parameter of {name!r}", key, tuple(signature))
        found[key] = _parsed(key, value, signature[key]) if isinstance(value, str) else value
    return found


def _routed(
    params: dict[str, Any],
    usual: Mapping[str, Any],
    signature: Mapping[str, inspect.Parameter],
) -> dict[str, Any]:
    """The bottleneck's parameters: its own, its rule's, and those of `fit_keys`, told by name."""
    from dkvb.estimators.parameters import key_parameters, rule_parameters, rules_with
    from dkvb.rules import rule_class

    rule = params.pop("rule", "counts")
    own = {key: params.pop(key) for key in list(params) if key in signature}
    made = {key: value for key, value in usual.items() if key in signature}
    made |= _parsed_all("bottleneck", own, signature)
    if not isinstance(rule, str):
        return made | {"rule": rule, **params}  # the classifier says what does not belong
    of_rule, of_keys = rule_parameters(rule), key_parameters()
    # `epochs` are the rule's, `key_epochs` those of the keys; `key_method` says more than `method`.
    of_keys |= {f"key_{key}": of_keys[key] for key in ("epochs", "method")}
    del of_keys["epochs"]
    given = {key: value for key, value in usual.items() if key in of_rule}
    keys: dict[str, Any] = {}
    for key, value in params.items():
        parameter = of_rule.get(key) or of_keys.get(key)
        if parameter is None:
            others = [f"rule={other}" for other in rules_with(key)]
            hint = f"; it belongs to {' and '.join(others)}" if others else ""
            valid = ", ".join(map(repr, (*signature, *of_rule, *of_keys)))
            raise ValueError(
                f"parameter of 'bottleneck' with rule={rule}: expected one of {valid}; "
                f"got {key!r}{hint}"
            )
        parsed = _parsed(key, value, parameter) if isinstance(value, str) else value
        if key in of_rule:
            given[key] = parsed
        else:
            keys[{"key_epochs": "epochs", "key_method": "method"}.get(key, key)] = parsed
    if keys:
        if made.get("keys") is not None:
            raise ValueError(f"keys: expected None beside {', '.join(keys)}; got keys")
        made["keys"] = keys
    return made | {"rule": rule_class(rule)(**given) if given else rule}


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
