"""Parameters that belong to the classifier, to its rule, or to `fit_keys`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.validation import one_of
from dkvb.bottleneck import Keys, fit_keys
from dkvb.rules import rule_class, rule_names

T = TypeVar("T")
FEW_CLASSES = 10  # of a first batch, from which keys are fitted without a warning
MOST_ROWS = 10**9  # of one call, each counted as often as its weight says

# Of `fit_keys`, what a classifier's own parameters or its data say.
_NOT_KEYS = ("X", "random_state", "device", "progress")


def key_parameters() -> dict[str, inspect.Parameter]:
    """The parameters of `fit_keys` that a mapping `keys` may override."""
    found = inspect.signature(fit_keys).parameters
    return {name: p for name, p in found.items() if name not in _NOT_KEYS}


def rule_parameters(rule: str) -> dict[str, inspect.Parameter]:
    """The parameters of a rule."""
    return dict(inspect.signature(rule_class(rule)).parameters)


def rules_with(parameter: str) -> list[str]:
    """The rules that have a parameter, by name."""
    return [name for name in rule_names() if parameter in rule_parameters(name)]


def without_unknown(cls: type[T]) -> type[T]:
    """The class with a signature that leaves out the keywords which it only takes to refuse."""
    signature = inspect.signature(cls)
    known = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    cls.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
    return cls


def refuse_unknown(estimator: str, unknown: Mapping[str, Any]) -> None:
    """Raise for keywords that are no parameters of a classifier, and say whose they are."""
    for name in unknown:
        _refuse(estimator, name)


def _refuse(estimator: str, name: str) -> NoReturn:
    owners = [f"rules.{rule_class(rule).__name__}" for rule in rules_with(name)]
    remedies = [f"rule={owner}({name}=...)" for owner in owners]
    if name in key_parameters():
        owners.append("fit_keys")
        remedies.append(f'keys={{"{name}": ...}}')
    if not owners:
        raise TypeError(
            f"{estimator} got an unexpected parameter {name!r}; expected keys, rule, "
            "novelty_threshold, random_state or device"
        )
    raise TypeError(
        f"{estimator} got an unexpected parameter {name!r}, which belongs to "
        f"{' and '.join(owners)}; pass {' or '.join(remedies)}"
    )


def check_keys(keys: Any) -> None:
    """Raise for what is neither keys nor a mapping of parameters of `fit_keys`."""
    if keys is None or isinstance(keys, Keys):
        return
    if not isinstance(keys, Mapping):
        raise TypeError(
            "keys: expected a Keys object, None, or a mapping of parameters of fit_keys; "
            f"got {type(keys).__name__}; make keys with dkvb.fit_keys(unlabelled rows)"
        )
    for name in keys:
        one_of("keys", name, tuple(key_parameters()))


def key_settings(keys: Any, preset: str) -> dict[str, Any]:
    """Arguments of `fit_keys`: a preset, and what a mapping overrides."""
    return {"preset": preset, **(keys if isinstance(keys, Mapping) else {})}


def repeated(sample_weight: Any, n: int) -> NDArray[np.int64]:
    """Row numbers, each as often as its weight says.

    >>> repeated([2, 0, 1], 3)
    array([0, 0, 2])
    """
    if isinstance(sample_weight, Tensor):
        sample_weight = sample_weight.detach().cpu()
    weight = np.asarray(sample_weight)
    if weight.shape != (n,) or weight.dtype.kind not in "iufb":
        raise ValueError(
            f"sample_weight: expected {n} numbers, one for each row; "
            f"got dtype {weight.dtype} of shape {weight.shape}"
        )
    with np.errstate(invalid="ignore"):
        times = weight.astype(np.int64)
    if (times != weight).any() or (times < 0).any():
        raise ValueError(
            "sample_weight: expected whole numbers of at least 0, since a row is learned a whole "
            "number of times; got others; scale and round them, such as 0.5, 1 to 1, 2"
        )
    if not times.any():
        raise ValueError("sample_weight: expected a row that counts; got zeros only")
    if times.sum(dtype=np.float64) > MOST_ROWS:
        raise ValueError(
            f"sample_weight: expected at most {MOST_ROWS} rows in all, each counted as often as "
            f"its weight says; got {times.sum(dtype=np.float64):.3g}; divide the weights by a "
            "common factor"
        )
    return np.repeat(np.arange(n), times)


class FewClassesWarning(UserWarning):
    """Keys are fitted to a first batch of few classes, and serve others worse."""


def warn_of_few_classes(present: frozenset[Any], declared: frozenset[Any]) -> None:
    """Warn where keys are about to be fitted to few of the classes."""
    if len(present) >= FEW_CLASSES or (declared and 2 * len(present) >= len(declared)):
        return
    warnings.warn(
        f"keys: fitted to a first batch of {len(present)} classes, and frozen from here on; other "
        "classes will be told apart less well; pass keys=fit_keys(X) with unlabelled rows of all "
        "kinds, or declare classes where these are all there are",
        FewClassesWarning,
        stacklevel=4,
    )
