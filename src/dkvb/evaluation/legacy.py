"""Names that version 0.1 wrote into records, and what they are called now.

Records of 0.1 are read with the new names. A run is identified by a digest of its parameters under
the names of 0.1, so that a run recorded by 0.1 is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXPERIMENTS = {"field": "all-methods"}
RECORD_KEYS = {"stages": "tasks", "cell": "run_id"}
EVALUATION_KEYS = {"stage": "task"}
METRICS = {
    "rows_a_used_pair": "samples_per_used_pair",
    "classes_a_used_pair": "classes_per_used_pair",
}
RUN_PARAMETERS = {
    "at_end": "final_only",
    "classes_per_stage": "classes_per_task",
    "rival_rate": "baseline_rate",
    "rival_epochs": "baseline_epochs",
}
RULE_PARAMETERS = {  # renamed only beside a "rule": other models have a temperature too
    "smoothing": "pseudocount",
    "temperature": "read_temperature",
    "prior": "class_weight",
    "search": "candidate_keys",
    "reject": "novelty_threshold",
}
RULE_VALUES: dict[str, dict[str, str | None]] = {
    "class_weight": {"uniform": "balanced", "empirical": None},
    "candidate_keys": {"selected": "used"},
}


def rename_experiment(name: str) -> str:
    """Return the present name of an experiment.

    >>> rename_experiment("field"), rename_experiment("toy")
    ('all-methods', 'toy')
    """
    return EXPERIMENTS.get(name, name)


def rename_record(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record with the present names of its keys and parameters."""
    record = _rename_keys(content, RECORD_KEYS)
    record["curve"] = [_rename_keys(point, EVALUATION_KEYS) for point in record["curve"]]
    metrics = _rename_keys(record["metrics"], METRICS)
    return {**record, "metrics": metrics, "config": _rename_config(record["config"])}


def _rename_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run with the present names of the rules' parameters."""
    renamed = {
        name: _rename_rule_parameters(config[name])
        for name in ("params", "settings")
        if name in config
    }
    return {**config, **renamed}


def restore_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run, nested ones too, under the names of 0.1."""
    return {
        old: restore_parameters(value) if isinstance(value, Mapping) else value
        for old, value in _restore(parameters).items()
    }


def _rename_keys(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in content.items()}


def _rename_rule_parameters(parameters: Any) -> Any:
    if not isinstance(parameters, Mapping) or "rule" not in parameters:
        return parameters
    renamed = _rename_keys(parameters, RULE_PARAMETERS)
    for name, values in RULE_VALUES.items():
        if renamed.get(name) in values:
            renamed[name] = values[renamed[name]]
    return renamed


def _restore(parameters: Mapping[str, Any]) -> dict[str, Any]:
    names = RUN_PARAMETERS | (RULE_PARAMETERS if "rule" in parameters else {})
    old_names = {new: old for old, new in names.items()}
    restored = {}
    for name, value in parameters.items():
        # On the command line None is written "none".
        text = None if value == "none" else value
        old_values = {new: old for old, new in RULE_VALUES.get(name, {}).items()}
        restored[old_names.get(name, name)] = (
            old_values[text] if isinstance(text, str | None) and text in old_values else value
        )
    return restored
