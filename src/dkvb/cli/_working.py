"""A bar for work that takes long and cannot say how far it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from dkvb.cli._shared import show_progress

PATIENCE = 2.0  # seconds without a bar


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Show what is done, and for how long already, on a terminal; nothing in a pipe.

    Parameters
    ----------
    what : str
        The work, such as "learning 300 rows".
    quiet : bool
        Whether to show nothing.
    """
    if not show_progress(quiet):
        yield
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=None)
    later = threading.Timer(PATIENCE, bar.start)
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()
        bar.stop()
