"""How values learn: stochastic gradient descent, counts, least squares.

>>> from dkvb import rules
>>> rules.Counts(pseudocount=0.02)
Counts(pseudocount=0.02)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dkvb.rules.base import RULES, Rule, make_rule, rule_class, rule_names

if TYPE_CHECKING:
    from dkvb.rules.counts.rule import Counts
    from dkvb.rules.least_squares.rule import LeastSquares
    from dkvb.rules.sgd.rule import SGD

__all__ = ["SGD", "Counts", "LeastSquares", "Rule", "make_rule", "rule_class", "rule_names"]


def __getattr__(attribute: str) -> Any:
    """Import on first use: no rule should make the others wait."""
    for name, class_name in RULES.items():
        if attribute == class_name:
            return rule_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
