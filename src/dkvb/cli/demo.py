"""`dkvb demo`: class-incremental learning on bundled data."""

from __future__ import annotations

from pathlib import Path

import typer

from dkvb.cli._shared import (
    Out,
    Quiet,
    clear_errors,
    make_folder,
    short_warnings,
    show,
    show_progress,
)


def demo(out: Out = Path("demo-output"), quiet: Quiet = False) -> None:
    """Learn real images two classes at a time, in under a minute."""
    with clear_errors():
        from dkvb._support.optional import require

        require("matplotlib", "plots", "dkvb demo")
        folder = make_folder(out)
    from dkvb.evaluation.demo import run

    with short_warnings():
        shown = run(folder, show_progress(quiet))
    if not quiet:
        show(shown["table"], as_json=False, title=shown["title"])
        typer.echo(f"picture: {shown['picture']}")
