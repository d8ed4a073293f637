"""Small settings under which each classifier learns easy problems in milliseconds."""

from __future__ import annotations

from typing import Any

from dkvb.classifiers import classifier_class, classifier_names

SMALL: dict[str, dict[str, Any]] = {
    "linear": {"learning_rate": 0.5, "epochs": 30, "batch_size": 16},
    "mlp": {"hidden": 16, "learning_rate": 0.02, "optimizer": "adam", "epochs": 30, "batch_size": 16},
    "ranpac": {"n_features": 64},
    "neighbours": {"k": 5},
}

ORDER_FREE = ("prototypes", "slda", "ranpac", "neighbours")
GRADIENT_TRAINED = ("linear", "mlp")


def small(name: str, **overrides: Any) -> Any:
    return classifier_class(name)(**{**SMALL.get(name, {}), **overrides})


NAMES = [name for name in classifier_names() if name != "bottleneck"]
