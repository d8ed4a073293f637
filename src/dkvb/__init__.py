"""Classifiers on frozen encoders that learn new classes in any order, without forgetting."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys, KeyValueBottleneck, fit_keys
    from dkvb.classifiers.bottleneck import BottleneckClassifier
    from dkvb.classifiers.regressor import BottleneckRegressor
    from dkvb.export import export_onnx

__version__ = "0.1.0"
__all__ = [
    "BottleneckClassifier",
    "BottleneckRegressor",
    "KeyValueBottleneck",
    "Keys",
    "export_onnx",
    "fit_keys",
]

_HOMES = {
    "BottleneckClassifier": "dkvb.classifiers.bottleneck",
    "BottleneckRegressor": "dkvb.classifiers.regressor",
    "KeyValueBottleneck": "dkvb.bottleneck",
    "Keys": "dkvb.bottleneck",
    "export_onnx": "dkvb.export",
    "fit_keys": "dkvb.bottleneck",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import dkvb` stays quick."""
    if name not in _HOMES:
        raise AttributeError(
            f"module 'dkvb' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
