"""What a command that changed a model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from dkvb.cli._shared import plural, printable, to_json

_DONE = {"fit": "learned", "learn": "learned", "forget": "forgot", "merge": "added"}
_UNDONE = {
    "learn": "the learn of",
    "relabel": "the relabel of",
    "rename": "the rename of a class with",
    "merge_classes": "the merge of classes with",
}


def acknowledge(
    operation: str,
    count: int,
    path: Path,
    classifier: Any,
    as_json: bool,
    *,
    repeated: str | None = None,
    undone: str | None = None,
    to: tuple[list[Any], Any] | None = None,
    **more: Any,
) -> None:
    """Say what is on disk now, or, with `dry_run`, would be.

    `repeated` is the id of an operation that was done before, `undone` the operation that an undo
    took back, `to` labels that rows had, if known, and their new label.
    """
    if as_json:
        facts = {"operation": operation, "rows": count, "classes": len(classifier.classes_)}
        more |= {"repeated": True} if repeated else {}
        more |= {"undone": undone} if undone else {}
        typer.echo(to_json({**facts, "model": str(path), **more}))
        return
    if repeated:
        typer.echo(printable(f"operation {repeated!r} was done already; nothing changed"))
        return
    dry_run, rows = more.get("dry_run", False), plural(count, "row")
    if to is not None:
        labels, new = to
        old = f" of {', '.join(map(repr, labels))}" if labels else ""
        done = f"{rows}{old} {'is' if count == 1 else 'are'} now {new!r}"
    elif undone is not None:
        done = f"undid {_UNDONE[undone]} {rows}"
    else:
        done = f"{'would have ' * dry_run}{_DONE[operation]} {rows}"
    knows = "would know" if dry_run else "knows"
    classes = plural(len(classifier.classes_), "class", "classes")
    typer.echo(printable(f"{done}; {path} {knows} {classes}"))
