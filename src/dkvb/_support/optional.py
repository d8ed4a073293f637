"""Optional packages: imported where they are used; an error names the extra that brings them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

# Packages that report on their users: onnxruntime from 1.29 on, those of Hugging Face, Ray and
# MLflow. The variables are read when a package is imported.
_NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


CPU_BUILDS = "https://download.pytorch.org/whl/cpu"  # of torch: 200 MB, not 3 GB


class MissingPackageError(ImportError, ValueError):
    """A package that an encoder or a data set needs is not installed, or does not load."""


def switch_telemetry_off() -> None:
    """Tell packages that report on their users not to, in this process and those it starts."""
    os.environ.update(_NO_TELEMETRY)


def require_torch(purpose: str) -> Any:
    """Import torch; where that fails, say what needs it and where it comes from."""
    return require("torch", "torch", purpose)


def require(module: str, extra: str, purpose: str) -> Any:
    """Import `module`; where that fails, say which extra of dkvb brings it.

    >>> require("no_such_package", "text", "encoder sentence-transformers")
    Traceback (most recent call last):
        ...
    dkvb._support.optional.MissingPackageError: encoder sentence-transformers: expected the
    package no_such_package; it is not installed; install it with pip install "dkvb[text]"
    """
    package = module.partition(".")[0]
    remedy = f'install it with pip install "dkvb[{extra}]"'
    if package == "torch":
        remedy += f"; builds for the CPU alone come with --extra-index-url {CPU_BUILDS}"
    switch_telemetry_off()
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        raise MissingPackageError(
            f"{purpose}: expected the package {missing}; it is not installed; {remedy}"
        ) from error
    except (ImportError, OSError, RuntimeError) as error:
        # Compiled packages that belong to another torch fail in many ways.
        raise MissingPackageError(
            f"{purpose}: expected the package {package}; it is installed but does not load "
            f"({' '.join(str(error).split())}); {remedy}, in the version that belongs to torch here"
        ) from error
    if package == "onnxruntime":  # also where somebody imported it before the variable was set
        imported.disable_telemetry_events()
    return imported
