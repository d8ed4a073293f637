"""The command line: parse, call, print; nothing else. One module a command, or a few like ones."""

from __future__ import annotations

from typing import Annotated

import typer

from dkvb import __version__
from dkvb.cli import demo, evaluate, reproduce

app = typer.Typer(
    name="dkvb",
    help="Discrete key-value bottleneck: learn new classes without forgetting the old ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the `dkvb` command."""
    app(prog_name="dkvb")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dkvb {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Discrete key-value bottleneck: learn new classes without forgetting the old ones."""


for command in (evaluate.evaluate, reproduce.reproduce, demo.demo):
    app.command()(command)
