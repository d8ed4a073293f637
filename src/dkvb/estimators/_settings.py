"""Checks on the parameters of the bottleneck classifier and on what comes with its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support import validation
from dkvb.bottleneck import Keys, conditioning
from dkvb.bottleneck.fit_keys import METHODS
from dkvb.estimators.base import check_device
from dkvb.rules.base import RULES
from dkvb.rules.sgd import descent as sgd

_COUNTS = ("n_codebooks", "n_pairs", "key_dim", "key_epochs", "n_components")
_CHOICES = {
    "key_method": METHODS,
    "conditioning": conditioning.KINDS,
    "search": ("selected", "all"),
    "value_dtype": tuple(sgd.DTYPES),
}


def check_settings(settings: Any) -> None:
    """Raise for a parameter that cannot be used."""
    validation.one_of("rule", settings.rule, tuple(RULES))
    for name in _COUNTS:
        if getattr(settings, name) is not None:
            validation.positive_int(name, getattr(settings, name))
    for name, options in _CHOICES.items():
        if getattr(settings, name) is not None:
            validation.one_of(name, getattr(settings, name), options)
    validation.positive_int("epochs", settings.epochs)
    validation.positive_int("batch_size", settings.batch_size)
    validation.real("learning_rate", settings.learning_rate, low=0, low_open=True)
    validation.real("label_smoothing", settings.label_smoothing, low=0, high=1)
    validation.real("smoothing", settings.smoothing, low=0, low_open=True)
    validation.real("temperature", settings.temperature, low=0, low_open=True)
    validation.one_of("prior", settings.prior, ("uniform", "empirical"))
    validation.one_of("pooling", settings.pooling, ("posterior", "votes"))
    if settings.reject is not None:
        validation.real("reject", settings.reject, low=0, high=1)
    if not isinstance(settings.ledger, bool | np.bool_):
        raise TypeError(f"ledger: expected True or False; got {settings.ledger!r}")
    check_device(settings.device)
    if settings.keys is not None and not isinstance(settings.keys, Keys):
        raise TypeError(
            f"keys: expected a Keys object or None; got {type(settings.keys).__name__}; "
            "make one with dkvb.fit_keys(unlabelled rows)"
        )


def repeated(sample_weight: Any, n: int) -> NDArray[np.int64]:
    """Row numbers, each as often as its weight says.

    >>> repeated([2, 0, 1], 3)
    array([0, 0, 2])
    """
    weight = np.asarray(sample_weight)
    if weight.shape != (n,) or weight.dtype.kind not in "iufb":
        raise ValueError(
            f"sample_weight: expected {n} numbers, one a row; "
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
    return np.repeat(np.arange(n), times)
