"""What the commands share: options, errors in one line, tables."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dkvb._support.optional import require_torch


class Device(StrEnum):
    """Where to compute."""

    cpu = "cpu"
    cuda = "cuda"


Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas.")]
Out = Annotated[Path, typer.Option(help="Folder for records, summary and picture.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, not as a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def printable(text: object) -> str:
    """Return text in one line without control characters, which could command a terminal.

    >>> printable("red\\x1b[2J\\nblue")
    'red\\\\x1b[2J\\\\nblue'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> plural(1, "row"), plural(2, "class", "classes")
    ('1 row', '2 classes')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def kept_text(keep: str, single_row_share: float) -> str:
    """Return what a classifier keeps of the rows that it learns.

    >>> kept_text("sums", 0.25)
    'a count and a sum per key and class; 25.0 % of these hold one row, and so are that row'
    """
    if keep == "examples":
        return "the embeddings that it learns, in half precision"
    share = f"{100 * single_row_share:.1f} %"
    return (
        f"a count and a sum per key and class; {share} of these hold one row, and so are that row"
    )


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON that holds no control characters but line breaks between its lines."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Bad input ends with one line and exit code 2, not with a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
            raise
        message = Text(printable(f"error: {' '.join(str(error).split())}"), style="bold red")
        Console(stderr=True).print(message, soft_wrap=True)
        raise typer.Exit(2) from error


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch could not allocate what it was asked for."""
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text


@contextmanager
def short_warnings() -> Iterator[None]:
    """Print warnings as one line each, without the source line they came from."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def warn(text: str) -> None:
    """Something to look into, beside the results."""
    message = Text(printable(f"warning: {text}"), style="yellow")
    Console(stderr=True).print(message, soft_wrap=True)


def note(text: str) -> None:
    """Something to know, beside the results."""
    Console(stderr=True).print(Text(printable(text), style="dim"), soft_wrap=True)


def silence(text: str) -> None:
    """In place of `note`, when nothing but errors is wanted."""


def show_progress(quiet: bool) -> bool:
    """Return True if progress is shown: on a terminal. If so, it is also said when kernels are
    being compiled."""
    shown = not quiet and sys.stderr.isatty()
    if shown:
        _show_compilation()
    return shown


def _show_compilation() -> None:
    """Say when kernels are being compiled, which makes the first command on a machine slower."""
    import logging

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.getMessage())

    log = logging.getLogger("dkvb.kernels")
    log.handlers[:] = [Note()]
    log.setLevel(logging.INFO)


def parse_seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) < 1 << 32 for part in parts):
        raise ValueError(
            f"--seeds: expected whole numbers from 0 to 2**32 - 1, such as 1,2,3; got {text!r}"
        )
    return tuple(int(part) for part in parts)


def available(device: Device) -> str:
    if device is Device.cuda and not require_torch("--device cuda").cuda.is_available():
        raise ValueError(
            "--device: expected a device that is here; got cuda, and torch sees none; use cpu"
        )
    return str(device)


def make_folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise ValueError(f"--out: expected a folder; got the file {path}; choose another name")
    path.mkdir(parents=True, exist_ok=True)
    return path


_STREAM_METRICS = (
    "final_accuracy", "average_incremental_accuracy", "forgetting", "learn_seconds",
)  # fmt: skip
_COLUMNS = {
    "final_accuracy": "final\naccuracy",
    "average_incremental_accuracy": "average\nincremental",
    "forgetting": "forgetting",
    "learn_seconds": "learning\n(seconds)",
    "class-incremental": "class-\nincremental",
    "training (s)": "training\n(s)",
    "balanced accuracy": "balanced\naccuracy",
}


def show(summary: Mapping[str, Any], as_json: bool, title: str, first: str = "classifier") -> None:
    """Print a summary: a row a classifier, a column a metric."""
    if as_json:
        typer.echo(to_json(summary, indent=2))
        return
    metrics = list(dict.fromkeys(metric for row in summary.values() for metric in row))
    if set(metrics) >= set(_STREAM_METRICS):
        metrics = list(_STREAM_METRICS)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for metric in metrics:
        table.add_column(
            _COLUMNS.get(metric, metric.replace("_", " ")), justify="right", no_wrap=True
        )
    for classifier, row in summary.items():
        table.add_row(Text(printable(classifier)), *(_cell(row.get(metric)) for metric in metrics))
    console = Console(width=output_width())
    if title:  # apart, since that of a table is broken to its width
        console.print(Text(printable(title)))
    console.print(table, Text())


def output_width() -> int | None:
    """Return the width of tables; None for that of the terminal, or of COLUMNS where it is set."""
    # Another pipe has no width to keep to.
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 200


def _cell(value: Any) -> str:
    if isinstance(value, Mapping) and {"mean", "std"} <= value.keys():
        mean, std = value["mean"], value["std"]
        deviation = "" if std is None else f" ± {std:.2f}"
        return "-" if mean is None else f"{mean:.2f}{deviation}"
    if isinstance(value, list):
        return "  ".join(_cell(item) for item in value)
    return f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)
