"""The paper's models and schedule as parameters of our classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dkvb.evaluation.grid import ClassifierSpec


@dataclass(frozen=True)
class Schedule:
    """Sizes and training; the defaults are the paper's (appendix C) for CIFAR-10."""

    n_codebooks: int = 256
    n_pairs: int = 4096
    key_dim: int = 14
    key_epochs: int = 10
    epochs: int = 2000  # per task; an i.i.d. stream is one task
    learning_rate: float = 0.3
    label_smoothing: float = 0.1
    baseline_rate: float = 0.001  # of linear probe and MLP
    evaluate_every: int | None = None  # epochs; default: after each task only


# A task has 160 steps instead of the paper's 80,000. The learning rate of the baselines is larger:
# with a much smaller rate × steps they would not learn enough to forget.
SMALL: dict[str, Any] = {
    "n_codebooks": 64,
    "n_pairs": 256,
    "key_dim": 8,
    "key_epochs": 3,
    "epochs": 40,
    "baseline_rate": 0.3,
}


def bottleneck(config: Schedule, text: str = "bottleneck", **changes: Any) -> ClassifierSpec:
    """Return the paper's bottleneck, whose values learn by SGD.

    All settings are explicit, so that equal runs of different experiments have equal ids.
    """
    settings: dict[str, Any] = {
        "n_codebooks": config.n_codebooks,
        "n_pairs": config.n_pairs,
        "key_dim": config.key_dim,
        "key_epochs": config.key_epochs,
        "key_method": "ema",
        "learning_rate": config.learning_rate,
        "label_smoothing": config.label_smoothing,
    }
    return ClassifierSpec(text, "bottleneck", settings | changes)


def with_both_keys(config: Schedule) -> list[ClassifierSpec]:
    """Return the bottleneck with our expiry of keys, and with that of the paper's code."""
    reference = "ema-reference"
    return [
        bottleneck(config),
        bottleneck(config, f"bottleneck:key_method={reference}", key_method=reference),
    ]


def linear(config: Schedule, text: str = "linear", **changes: Any) -> ClassifierSpec:
    """Return the linear probe; the paper's variants set `bias=False` or `weight_decay`."""
    return ClassifierSpec(text, "linear", _baseline(config) | changes)


def mlp(config: Schedule, text: str = "mlp", **changes: Any) -> ClassifierSpec:
    """Return the MLP with one hidden layer of 128 units."""
    return ClassifierSpec(text, "mlp", _baseline(config) | {"hidden": 128} | changes)


def _baseline(config: Schedule) -> dict[str, Any]:
    return {"learning_rate": config.baseline_rate, "label_smoothing": config.label_smoothing}
