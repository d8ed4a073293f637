"""Statements of the paper's sections 3 to 6 and appendix, evaluated from records alone."""

from dkvb.evaluation.paper.statements.ablations import ABLATIONS
from dkvb.evaluation.paper.statements.appendix import APPENDIX
from dkvb.evaluation.paper.statements.base import (
    Records,
    Statement,
    Verdict,
    decide,
    evaluate_with,
)
from dkvb.evaluation.paper.statements.extensions import EXTENSIONS
from dkvb.evaluation.paper.statements.main import MAIN
from dkvb.evaluation.paper.statements.theory import THEORY

__all__ = ["STATEMENTS", "Records", "Statement", "Verdict", "decide", "evaluate_statements"]

STATEMENTS: tuple[Statement, ...] = (*THEORY, *MAIN, *ABLATIONS, *EXTENSIONS, *APPENDIX)


def evaluate_statements(records: "dict[str, Records]") -> list[Verdict]:
    """Return a verdict on every statement of the paper from records by experiment."""
    return evaluate_with(STATEMENTS, records)
