"""Classifiers of other packages, given as `module:Class`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any


def is_custom(name: str) -> bool:
    """Return whether a name is `module:Class`.

    >>> is_custom("sklearn.naive_bayes:GaussianNB"), is_custom("linear")
    (True, False)
    """
    module, colon, attribute = name.partition(":")
    return (
        bool(colon) and attribute.isidentifier() and all(map(str.isidentifier, module.split(".")))
    )


def import_custom(name: str) -> type[Any]:
    """Import the class that `module:Class` names; modules of the working directory are found too.

    >>> import_custom("sklearn.naive_bayes:GaussianNB").__name__
    'GaussianNB'
    """
    module, _, attribute = name.partition(":")
    try:
        with _working_directory_on_path():
            cls = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"classifier: expected module:Class that can be imported; got {name!r}: {error}"
        ) from error
    missing = [method for method in ("fit", "predict") if not hasattr(cls, method)]
    if not inspect.isclass(cls) or missing:
        raise TypeError(
            "classifier: expected a class with scikit-learn's methods fit or partial_fit, and "
            f"predict; got {name!r} without {' and '.join(missing) or 'being a class'}"
        )
    return cls


def make_custom(
    name: str,
    params: Mapping[str, Any],
    *,
    seed: int = 0,
    device: str = "cpu",
    epochs: int | None = None,
) -> Any:
    """Return an instance of `module:Class`, with its parameters as values or as text.

    `random_state`, `device` and `epochs` are set where the class has them, unless given.

    >>> make_custom("sklearn.naive_bayes:GaussianNB", {"var_smoothing": "1e-6"})
    GaussianNB(var_smoothing=1e-06)
    """
    cls = import_custom(name)
    signature = inspect.signature(cls).parameters
    settings = {key: _parse(value) for key, value in params.items()}
    unknown = settings.keys() - signature.keys()
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in signature.values()):
        raise ValueError(
            f"parameter of {name!r}: expected one of {', '.join(signature)}; "
            f"got {', '.join(sorted(unknown))}"
        )
    for key, value in {"random_state": seed, "device": device, "epochs": epochs}.items():
        if key in signature and value is not None:
            settings.setdefault(key, value)
    return cls(**settings)


def _parse(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    literal = {"true": "True", "false": "False", "none": "None"}.get(value.lower(), value)
    try:
        return ast.literal_eval(literal)
    except (ValueError, SyntaxError):
        return value


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
