"""`dkvb report`: one page from the records in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dkvb.cli._shared import AsJson, Quiet, clear_errors, note, plural

_MANY = {"holds": "hold", "tautology": "tautologies"}


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with results of dkvb reproduce.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write, .html or .md; default: DIR/report.html."),
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option(help="Also write the sentences on the reproduction into this Markdown file."),
    ] = None,
    status: Annotated[
        Path | None,
        typer.Option(help="Also write the status of every experiment to this CSV file."),
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
        from dkvb.evaluation.report import build
        from dkvb.evaluation.report.sentences import replace_block
        from dkvb.evaluation.report.status import status_csv

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
        if readme is not None:
            replaced = replace_block(readme.read_text(encoding="utf-8"), page.sentences)
            replace_file(readme, [replaced.encode()])
        if status is not None:
            replace_file(status, [status_csv(page.summary()["status"]).encode()])
    if quiet:
        return
    if as_json:
        typer.echo(json.dumps(page.summary(), indent=2, ensure_ascii=False))
        return
    for line in page.collection.notes:
        note(line)
    counts = ", ".join(
        plural(n, name, _MANY.get(name, name)) for name, n in page.counts.items() if n
    )
    here = len({group.experiment for group in page.collection.groups})
    kinds = {group.kind for group in page.collection.groups}
    small = (
        ""
        if "full" in kinds
        else f" (from {', '.join(sorted(kinds))} runs, not the paper's settings)"
    )
    experiments = plural(here, "experiment")
    typer.echo(f"{experiments}, statements of the paper: {counts or 'none'}{small}")
    typer.echo(f"page: {path}")
