"""`dkvb cache`: list, check and delete embeddings that are kept."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dkvb.cli._once import Once
from dkvb.cli._shared import Quiet, clear_errors
from dkvb.cli.embed import AsJson, CacheFolder, readable

cache = typer.Typer(
    help="Embeddings that are kept: list, check and delete them.", no_args_is_help=True
)

Some = Annotated[
    list[str] | None, typer.Argument(metavar="[ENTRY]...", help="Starts of entries' addresses.")
]


@cache.command("ls", cls=Once)
def ls(folder: CacheFolder = None, as_json: AsJson = False) -> None:
    """List what is kept, with its size."""
    from dkvb.embedding import Cache

    rows: list[dict[str, Any]] = [
        {
            "entry": entry.address,
            "encoder": entry.about["encoder_name"],
            "data": entry.about["data_name"],
            "items": entry.n_items,
            "done": sum(len(entry.span(shard)) for shard in entry.present()),
            "dimension": entry.about["dimension"],
            "dtype": entry.identity["dtype"],
            "bytes": entry.size(),
        }
        for entry in Cache(folder).entries()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    total = readable(sum(row["bytes"] for row in rows))
    where = Cache(folder).folder
    table = Table(
        title=f"{where}: {len(rows)} kept, {total}", title_justify="left", box=box.SIMPLE_HEAD
    )
    for heading in ("entry", "encoder", "data", "rows", "width", "type", "size"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        done = "" if row["done"] == row["items"] else f" of {row['items']}"
        table.add_row(
            row["entry"][:12], row["encoder"], row["data"], f"{row['done']}{done}",
            str(row["dimension"]), row["dtype"], readable(row["bytes"]),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 200).print(table)


@cache.command("verify", cls=Once)
def verify(
    entries: Some = None, folder: CacheFolder = None, as_json: AsJson = False, quiet: Quiet = False
) -> None:
    """Check every byte that is kept against its checksum; exit code 1 if something is wrong."""
    with clear_errors():
        from dkvb.embedding import Cache

        kept = Cache(folder)
        chosen = [kept.find(start) for start in entries] if entries else list(kept.entries())
        damage = [
            {"entry": entry.address, "shard": shard, "problem": problem}
            for entry in chosen
            for shard, problem in entry.damage()
        ]
    if as_json:
        typer.echo(json.dumps(damage, indent=2))
    elif not quiet or damage:
        for item in damage:
            typer.echo(f"{str(item['entry'])[:12]}: {item['problem']}")
        remedy = "; the command that made them makes only these again" if damage else ""
        typer.echo(f"{len(chosen)} checked, {len(damage)} shards damaged{remedy}")
    if damage:
        raise typer.Exit(1)


@cache.command("rm", cls=Once)
def rm(
    entries: Some = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all entries.")] = False,
    folder: CacheFolder = None,
    quiet: Quiet = False,
) -> None:
    """Delete entries."""
    with clear_errors():
        from dkvb.embedding import Cache

        kept = Cache(folder)
        if bool(entries) == everything:
            raise ValueError("ENTRY: expected starts of addresses, or --all; dkvb cache ls lists")
        chosen = (
            list(kept.entries()) if everything else [kept.find(start) for start in entries or ()]
        )
        chosen = list({entry.address: entry for entry in chosen}.values())  # each once
        freed = sum(kept.remove(entry) for entry in chosen)
    if not quiet:
        typer.echo(f"{len(chosen)} deleted, {readable(freed)} freed")
