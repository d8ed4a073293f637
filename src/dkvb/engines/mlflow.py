"""MLflow: a model as a `pyfunc`, which predicts; no pickle, the files are those of a model folder.

MLflow reads the model through this module (`loader_module`), so dkvb must be installed where it
is served. Learning goes on in the model folder, not in MLflow.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb import __version__
from dkvb._support.arrow import is_tabular
from dkvb._support.optional import require, switch_telemetry_off
from dkvb.store import load
from dkvb.store.packing import pack

_FOLDER = "model"
switch_telemetry_off()  # here, since a run may start before any function of this module


def log_model(model: Any, name: str = "model", **settings: Any) -> Any:
    """Log a model in the current MLflow run, and return MLflow's description of it.

    Parameters
    ----------
    model : str, Path or classifier
        A model folder, a model's file, or a fitted classifier.
    name : str
        What the model is called in the run.
    **settings
        Further arguments of `mlflow.pyfunc.log_model`, such as `registered_model_name`.
    """
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        pack(model, Path(folder) / _FOLDER)
        return mlflow.pyfunc.log_model(name=name, **_flavour(Path(folder)), **settings)


def save_model(model: Any, path: str | Path, **settings: Any) -> None:
    """Write a model to a new folder in MLflow's format; see `log_model`."""
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        pack(model, Path(folder) / _FOLDER)
        mlflow.pyfunc.save_model(str(path), **_flavour(Path(folder)), **settings)


def _mlflow() -> Any:
    require("mlflow.pyfunc", "mlflow", "dkvb.engines.mlflow")
    return require("mlflow", "mlflow", "dkvb.engines.mlflow")


def _flavour(folder: Path) -> dict[str, Any]:
    return {
        "loader_module": __name__,
        "data_path": str(folder / _FOLDER),
        "pip_requirements": [f"dkvb=={__version__}"],
    }


def _load_pyfunc(path: str) -> _Predictor:
    """What MLflow calls to load a model."""
    return _Predictor(load(path))


class _Predictor:
    """A classifier as MLflow asks it."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> NDArray[Any]:
        """Return labels (n,) of embeddings: an array, a frame of numbers, or a column of lists."""
        if hasattr(model_input, "columns") and not is_tabular(model_input):
            model_input = np.asarray(model_input, dtype=np.float32)  # MLflow names the columns
        labels: NDArray[Any] = self.classifier.predict(model_input)
        return labels
