"""The command line: parse, call, print; nothing else. One module a command, or a few like ones."""

from __future__ import annotations

from typing import Annotated

import typer

from dkvb import __version__
from dkvb.cli import ask, cache, demo, embed, evaluate, labels, model, serve
from dkvb.cli._once import Group, Once

app = typer.Typer(
    name="dkvb",
    cls=Group,
    help="Classifiers on frozen encoders: learn new classes without forgetting the old ones.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """Classifiers on frozen encoders: learn new classes without forgetting the old ones."""


for command in (
    *(model.fit, model.learn, model.forget, model.merge, model.tune),
    *(labels.relabel, labels.rename, labels.merge_classes, labels.undo),
    *(ask.predict, ask.inspect, ask.history, ask.export, serve.serve),
    *(evaluate.evaluate, embed.embed, demo.demo),
):
    app.command(cls=Once)(command)
app.add_typer(cache.cache, name="cache")
