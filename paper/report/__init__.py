"""A Markdown page from records: the paper's numbers and claims beside ours, tables and figures."""

from paper.report.page import Report, build

__all__ = ["Report", "build"]
