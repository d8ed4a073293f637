"""`dkvb report`: one page from the records in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dkvb.cli._shared import AsJson, Quiet, clear_errors, note


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with results of dkvb reproduce.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write, .html or .md; default: DIR/report.html."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a report: the paper's numbers and statements beside ours, tables and figures.

    The page is made from the records of dkvb reproduce; nothing is run. An HTML page contains its
    figures; those of a Markdown page are in a folder of its name.
    """
    with clear_errors():
        from dkvb._support.optional import require

        for package in ("matplotlib", "jinja2"):
            require(package, "report", "dkvb report")
        from dkvb._support.files.atomic import replace_file
        from dkvb.benchmark.report import build

        path = out or folder / "report.html"
        if path.is_dir():
            raise ValueError(f"--out: expected a file; got the folder {path}")
        if path.suffix not in (".html", ".md"):
            raise ValueError(f"--out: expected a name that ends in .html or .md; got {path}")
        page = build(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        as_text = path.suffix == ".md"
        text = page.markdown(path.with_suffix("")) if as_text else page.html
        replace_file(path, [text.encode()])
    if quiet:
        return
    if as_json:
        typer.echo(json.dumps(page.summary(), indent=2, ensure_ascii=False))
        return
    for line in page.collection.notes:
        note(line)
    marks = [verdict.mark for verdict in page.verdicts]
    counts = ", ".join(f"{marks.count(m)} {m}" for m in ("✓", "✗", "not measured"))
    here = len({group.experiment for group in page.collection.groups})
    kinds = {group.kind for group in page.collection.groups}
    small = (
        ""
        if "full" in kinds
        else f" (from {', '.join(sorted(kinds))} runs, not the paper's settings)"
    )
    typer.echo(f"{here} experiments, statements of the paper: {counts}{small}")
    typer.echo(f"page: {path}")
