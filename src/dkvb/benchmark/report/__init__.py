"""One page from records: the paper against ours, its statements, and every experiment's figures.

Nothing here trains, and the page loads nothing: styles and pictures are in it.
"""

from dkvb.benchmark.report.page import Report, build

__all__ = ["Report", "build"]
