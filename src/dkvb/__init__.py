"""Classifiers on frozen encoders that learn new classes in any order, without forgetting."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkvb import rules
    from dkvb.bottleneck import Keys, KeyValueBottleneck, fit_keys
    from dkvb.estimators.bottleneck import BottleneckClassifier
    from dkvb.estimators.kernel import KernelClassifier
    from dkvb.estimators.regressor import BottleneckRegressor
    from dkvb.export import export_onnx
    from dkvb.serve import client
    from dkvb.store import load

__version__ = "0.2.0"
__all__ = [
    "BottleneckClassifier",
    "BottleneckRegressor",
    "KernelClassifier",
    "KeyValueBottleneck",
    "Keys",
    "client",
    "export_onnx",
    "fit_keys",
    "load",
    "rules",
]

_HOMES = {
    "BottleneckClassifier": "dkvb.estimators.bottleneck",
    "BottleneckRegressor": "dkvb.estimators.regressor",
    "KernelClassifier": "dkvb.estimators.kernel",
    "KeyValueBottleneck": "dkvb.bottleneck",
    "Keys": "dkvb.bottleneck",
    "export_onnx": "dkvb.export",
    "fit_keys": "dkvb.bottleneck",
    "load": "dkvb.store",
}
_MODULES = {"client": "dkvb.serve.client", "rules": "dkvb.rules"}


def __getattr__(name: str) -> Any:
    """Import on first use: `import dkvb` stays quick."""
    if name not in __all__:
        raise AttributeError(
            f"module 'dkvb' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    if name in _MODULES:
        return import_module(_MODULES[name])
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
