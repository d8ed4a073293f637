"""Settings of keys that a classifier fits to its first rows."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from dkvb._support.validation import one_of
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.bottleneck.keys import Keys

FEW_CLASSES = 10  # of a first batch, from which keys are fitted without a warning

# Arguments of `fit_keys` that a classifier's own parameters or its data determine.
_NOT_SETTINGS = ("X", "random_state", "device", "progress")


def key_parameters() -> dict[str, inspect.Parameter]:
    """Return the parameters of `fit_keys` that a mapping `keys` may override."""
    signature = inspect.signature(fit_keys).parameters
    return {name: p for name, p in signature.items() if name not in _NOT_SETTINGS}


def check_keys(keys: Any) -> None:
    """Raise unless `keys` are Keys, None or a mapping of parameters of `fit_keys`."""
    if keys is None or isinstance(keys, Keys):
        return
    if not isinstance(keys, Mapping):
        raise TypeError(
            "keys: expected a Keys object, None, or a mapping of parameters of fit_keys; "
            f"got {type(keys).__name__}; make keys with dkvb.fit_keys(unlabelled rows)"
        )
    for name in keys:
        one_of("keys", name, tuple(key_parameters()))


class FewClassesWarning(UserWarning):
    """Keys are fitted to a first batch of few classes, and serve others worse."""


def warn_of_few_classes(present: frozenset[Any], declared: frozenset[Any]) -> None:
    """Warn if keys are about to be fitted to few of the classes."""
    if len(present) >= FEW_CLASSES or (declared and 2 * len(present) >= len(declared)):
        return
    warnings.warn(
        f"keys: fitted to a first batch of {len(present)} classes, and frozen from here on; other "
        "classes will be told apart less well; pass keys=fit_keys(X) with unlabelled rows of all "
        "kinds, or declare classes where these are all there are",
        FewClassesWarning,
        stacklevel=4,
    )
