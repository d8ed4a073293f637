"""Classifiers on frozen encoders that learn new classes in any order, without forgetting."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dkvb._support.optional import require_torch

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys, KeyValueBottleneck, fit_keys
    from dkvb.bottleneck.classifier import BottleneckClassifier
    from dkvb.export import export_onnx
    from dkvb.memory import KernelClassifier, KernelRegressor
    from dkvb.serve import client
    from dkvb.store import load

__version__ = "0.2.0"
__all__ = [
    "BottleneckClassifier",
    "KernelClassifier",
    "KernelRegressor",
    "KeyValueBottleneck",
    "Keys",
    "client",
    "export_onnx",
    "fit_keys",
    "load",
]

_HOMES = {
    "BottleneckClassifier": "dkvb.bottleneck.classifier",
    "KernelClassifier": "dkvb.memory",
    "KernelRegressor": "dkvb.memory",
    "KeyValueBottleneck": "dkvb.bottleneck",
    "Keys": "dkvb.bottleneck",
    "export_onnx": "dkvb.export",
    "fit_keys": "dkvb.bottleneck",
    "load": "dkvb.store",
}


_NEED_TORCH = ("BottleneckClassifier", "KeyValueBottleneck", "Keys", "export_onnx", "fit_keys")


def __getattr__(name: str) -> Any:
    """Import on first use: `import dkvb` stays quick."""
    if name not in __all__:
        raise AttributeError(
            f"module 'dkvb' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    if name == "client":
        return import_module("dkvb.serve.client")
    if name in _NEED_TORCH:
        require_torch(f"dkvb.{name}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
