"""`dkvb cache`: list, check and delete embeddings that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from dkvb.cli._items import CacheFolder
from dkvb.cli._once import Group, Once
from dkvb.cli._shared import Quiet, clear_errors, note, output_width, printable
from dkvb.cli.embed import AsJson

cache = typer.Typer(
    cls=Group,
    help="Embeddings that are kept: list, check and delete them.",
    no_args_is_help=True,
)

Some = Annotated[
    list[str] | None, typer.Argument(metavar="[ENTRY]...", help="Starts of entries' addresses.")
]


@cache.command("ls", cls=Once)
def ls(folder: CacheFolder = None, as_json: AsJson = False) -> None:
    """List what is kept, with its size."""
    from dkvb.embedding import Cache

    kept = Cache(folder)
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
        for entry in kept.entries()
    ]
    damaged = [str(path) for path in kept.damaged()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    total = decimal(sum(row["bytes"] for row in rows))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("entry", "encoder", "data", "rows", "width", "type", "size"):
        table.add_column(heading, overflow="fold", no_wrap=heading not in ("encoder", "data"))
    for row in rows:
        done = "" if row["done"] == row["items"] else f" of {row['items']}"
        cells = (
            row["entry"][:12], row["encoder"], row["data"], f"{row['done']}{done}",
            str(row["dimension"]), row["dtype"], decimal(row["bytes"]),
        )  # fmt: skip
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console(width=output_width())
    # Text, since square brackets in names are no markup.
    console.print(Text(printable(f"{kept.folder}: {len(rows)} kept, {total}")), table)
    _name_damaged(damaged)


@cache.command("verify", cls=Once)
def verify(
    entries: Some = None, folder: CacheFolder = None, as_json: AsJson = False, quiet: Quiet = False
) -> None:
    """Check every byte that is kept against its checksum; exit code 1 if something is wrong."""
    with clear_errors():
        from dkvb.embedding import Cache

        kept = Cache(folder)
        chosen = [kept.find(start) for start in entries] if entries else list(kept.entries())
        damaged = [] if entries else [str(path) for path in kept.damaged()]
        damage: list[dict[str, Any]] = [
            {"entry": entry.address, "shard": shard, "problem": problem}
            for entry in chosen
            for shard, problem in entry.damage()
        ]
        damage += [
            {"entry": Path(path).name, "shard": None, "problem": "its description was changed"}
            for path in damaged
        ]
    if as_json:
        typer.echo(json.dumps(damage, indent=2))
    elif not quiet or damage:
        for item in damage:
            typer.echo(f"{str(item['entry'])[:12]}: {item['problem']}")
        n_shards = len(damage) - len(damaged)
        remedy = "; the command that made them makes only these again" if n_shards else ""
        typer.echo(f"{len(chosen)} checked, {n_shards} shards damaged{remedy}")
        _name_damaged(damaged)
    if damage:
        raise typer.Exit(1)


@cache.command("rm", cls=Once)
def rm(
    entries: Some = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all entries.")] = False,
    folder: CacheFolder = None,
    quiet: Quiet = False,
) -> None:
    """Delete entries; with --all, also damaged ones and the hashes of files."""
    with clear_errors():
        from dkvb.embedding import Cache

        kept = Cache(folder)
        if bool(entries) == everything:
            raise ValueError("ENTRY: expected starts of addresses, or --all; dkvb cache ls lists")
        if everything:
            count, freed = kept.remove_all()
        else:
            found = [kept.find(start) for start in entries or ()]
            chosen = {entry.address: entry for entry in found}  # each once
            count, freed = len(chosen), sum(map(kept.remove, chosen.values()))
    if not quiet:
        typer.echo(f"{count} deleted, {decimal(freed)} freed")


def _name_damaged(paths: list[str]) -> None:
    if paths:
        note(f"{len(paths)} damaged, which dkvb cache rm --all deletes:")
    for path in paths[:20]:
        note(f"  {printable(path)}")
