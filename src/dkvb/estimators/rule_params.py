"""Rules in the parameters of a saved classifier, and what formats 1 and 2 wrote instead."""

from __future__ import annotations

from typing import Any

from dkvb._support.files import State
from dkvb.rules import Rule, make_rule, rule_class

# Of formats 1 and 2: parameters of `fit_keys` that stood beside the classifier's own.
_KEYS = ("n_codebooks", "n_pairs", "key_dim", "conditioning", "n_components")
_RENAMED_KEYS = {"key_method": "method", "key_epochs": "epochs"}


def rule_from(saved: dict[str, Any]) -> str | Rule:
    """The rule that a file describes by name and parameters; by name alone, its name."""
    name, params = saved["name"], saved["params"]
    return name if params is None else rule_class(name)(**params)


def params_from_flat(flat: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a classifier from those of formats 1 and 2, which held the rule's as well."""
    cls = rule_class(flat["rule"])
    kept: dict[str, Any] = {name: flat[name] for name in ("random_state", "device") if name in flat}
    return {
        "keys": keys_from_flat(flat),
        "rule": cls(**cls.params_from_flat(flat)),
        "novelty_threshold": flat.get("reject"),
        **kept,
    }


def keys_from_flat(flat: dict[str, Any]) -> dict[str, Any] | None:
    """The mapping of parameters of `fit_keys` that formats 1 and 2 wrote beside the others."""
    named = {name: flat[name] for name in _KEYS if flat.get(name) is not None}
    named |= {new: flat[old] for old, new in _RENAMED_KEYS.items() if flat.get(old) is not None}
    return named or None


def fitted_rule(learned: State, own: str | Rule) -> Rule:
    """The rule, without what it has learned, that a file's learned part describes; formats 1 and 2
    named it only, and its parameters are the classifier's own."""
    saved = learned.part("rule").fact("rule", (dict, str))
    if isinstance(saved, dict):
        rule = make_rule(rule_from(saved))
        rule.check_params()
        return rule
    rule = make_rule(own)
    if rule.name != saved:
        raise learned.damaged(
            f"rule: expected {rule.name!r}, as the parameters say; got {saved!r:.40}"
        )
    return rule
