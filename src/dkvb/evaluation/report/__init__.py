"""A report on records as one page: the paper's numbers and statements, tables and figures.

Nothing here trains. The page needs no other files: styles and figures are in it.
"""

from dkvb.evaluation.report.page import Report, build

__all__ = ["Report", "build"]
