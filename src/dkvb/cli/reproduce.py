"""`dkvb reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dkvb.cli._shared import (
    AsJson,
    Quiet,
    Seeds,
    clear_errors,
    make_folder,
    parse_seeds,
    short_warnings,
    show,
    show_progress,
)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Experiment; --list names them.")] = None,
    seeds: Seeds = "1,2,3,4,5",
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; runs/NAME unless given.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run one experiment of the paper."""
    from dkvb.paper import EXPERIMENTS

    if list_all:
        for experiment, description in EXPERIMENTS.items():
            typer.echo(f"{experiment:<18}{description}")
        return
    with clear_errors():
        from importlib import import_module

        from dkvb import _validate

        if name is None:
            raise ValueError("NAME: expected an experiment; dkvb reproduce --list names them")
        _validate.one_of("NAME", name, EXPERIMENTS)
        wanted_seeds = parse_seeds(seeds)
        folder = make_folder(out or Path("runs") / name)
    module = import_module(f"dkvb.paper.{name.replace('-', '_')}")
    with short_warnings():
        summary = module.run(list(wanted_seeds), folder, show_progress(quiet))
    if not quiet:
        show(summary, as_json, name)
        if not as_json:
            typer.echo(f"results: {folder}")
