"""What `dkvb predict` says: one answer per item, as a table, CSV, JSON Lines, npz or Parquet."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dkvb._support import validation
from dkvb._support.files import replace_file
from dkvb._support.files.sink import Sink
from dkvb._support.optional import require
from dkvb.cli._shared import note, plural, printable, to_json
from dkvb.estimators.answers import Answers as FoundAnswers

Array = NDArray[Any]


@dataclass(frozen=True)
class Answers:
    """Predictions for n items, by name."""

    items: list[str]  # n names: of a file, a text, or the number of a row
    found: FoundAnswers
    top: int | None = None  # how many classes to name per item

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per item, of plain values."""
        records = zip(self.items, self.found.records(self.top), strict=True)
        return [{"item": item, **record} for item, record in records]


def predict(
    classifier: Any, X: Any, items: list[str] | None, top: int | None, rows: int = 1 << 14
) -> Iterator[Answers]:
    """Ask a classifier about X (n, m), some rows at a time."""
    for start in range(0, max(1, len(X)), rows):
        stop = min(start + rows, len(X))
        names = list(map(str, range(start, stop))) if items is None else items[start:stop]
        yield Answers(names, classifier.ask(X[start:stop]), top)


# --------------------------------------------------------------------------------------- printing
def show(parts: Iterable[Answers], as_json: bool) -> None:
    """Print a table on a terminal, CSV elsewhere, or JSON."""
    if not as_json and not sys.stdout.isatty():
        for text in _csv(parts, printable):
            typer.echo(text, nl=False)
        return
    records = [record for part in parts for record in part.records()]
    if as_json:
        typer.echo(to_json(records))
    else:
        console = Console()
        console.print(_table(records, console.width))


def _table(records: list[dict[str, Any]], width: int = 80) -> Table:
    """A table of that width: names of items are cut in favour of labels and numbers."""
    rows = [_ranked(record) if "top" in record else record for record in records]
    cells = {
        name: [_HEADINGS.get(name, name.replace("_", " ")), *(_cell(row.get(name)) for row in rows)]
        for name in _columns(rows)
    }
    widest = {"labels": max(_WIDEST, width - _ITEM - 13)}  # which is broken, not cut
    widths = {
        name: min(widest.get(name, _WIDEST), max(map(cell_len, texts)))
        for name, texts in cells.items()
    }
    widths["item"] = max(map(cell_len, cells["item"]))
    left = width - sum(widths.values()) + widths["item"] - 3 * (len(widths) - 1)
    widths["item"] = max(8, min(widths["item"], left))
    cells["item"] = [_cut(text, widths["item"]) for text in cells["item"]]
    if "labels" in cells:
        cells["labels"] = [_broken(text, widths["labels"]) for text in cells["labels"]]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for name, (heading, *_) in cells.items():
        number = any(isinstance(row.get(name), float) for row in rows)
        table.add_column(
            heading,
            justify="right" if number else "left",
            no_wrap=name != "labels",
            overflow="ellipsis",
            width=widths[name],
        )
    for texts in zip(*(texts[1:] for texts in cells.values()), strict=True):
        table.add_row(*map(Text, texts))
    return table


def _cut(text: str, width: int) -> str:
    """The end of a path that is too long: names of files differ there."""
    return text if cell_len(text) <= width or "/" not in text else "…" + text[1 - width :]


def _broken(text: str, width: int) -> str:
    """Labels with their probabilities in as many lines as it takes, broken between two of them."""
    lines: list[str] = []
    for one in text.split(", "):
        if lines and cell_len(f"{lines[-1]}, {one},") <= width:
            lines[-1] += f", {one}"
        else:
            lines.append(one)
    return ",\n".join(lines)


def _ranked(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose classes of `top` are in one column, the likeliest first."""
    top = [(printable(one["label"]), one["probability"]) for one in record["top"]]
    labels = ", ".join(f"{label} {probability:.3f}" for label, probability in top)
    if top and record["label"] != record["top"][0]["label"]:  # such as "unknown"
        labels = f"{printable(record['label'])}: {labels}"
    return {
        name: labels if name == "labels" else record[name]
        for name in ("item", "labels", "novelty")
        if name == "labels" or name in record
    }


_WIDEST = 16  # of labels, in a table
_ITEM = 24  # columns that are left for an item beside many labels
_HEADINGS = {"runner_up_probability": "prob.", "probability": "prob.", "runner_up": "runner-up"}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else printable(value)


def _csv(parts: Iterable[Answers], shown: Callable[[object], str] = str) -> Iterator[str]:
    """Lines of CSV, a piece for each part."""
    columns: list[str] | None = None
    for part in parts:
        rows = [_flat(record) for record in part.records()]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if columns is None:
            columns = _columns(rows)
            writer.writerow(columns)
        for row in rows:
            values = (row.get(name) for name in columns)
            writer.writerow(
                "" if v is None else f"{v:.6g}" if isinstance(v, float) else shown(v)
                for v in values
            )
        yield text.getvalue()


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(rows[0]) if rows else []


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record of one level: the classes of `top` in columns of their own."""
    flat = {name: value for name, value in record.items() if name != "top"}
    for rank, one in enumerate(record.get("top", ()), 1):
        flat |= {f"label_{rank}": one["label"], f"probability_{rank}": one["probability"]}
    return flat


# ---------------------------------------------------------------------------------------- writing
def check_out(out: Path) -> None:
    """Raise where answers cannot be written to a file of that name, before any work."""
    if out.suffix.lower() not in _WRITERS:
        raise ValueError(f"--out: expected a name in {', '.join(_WRITERS)}; got {out}")
    if out.suffix.lower() == ".parquet":
        require("pyarrow.parquet", "arrow", "--out with a name in .parquet")
    validation.new_file("--out", out)


def write(out: Path, parts: Iterable[Answers]) -> None:
    """Write answers to a file as they come, in the format that its name says."""
    replace_file(out, _WRITERS[out.suffix.lower()](parts))


def _csv_bytes(parts: Iterable[Answers]) -> Iterator[bytes]:
    return (text.encode(errors="surrogateescape") for text in _csv(parts))


def _jsonl_bytes(parts: Iterable[Answers]) -> Iterator[bytes]:
    for part in parts:
        yield "".join(to_json(record) + "\n" for record in part.records()).encode()


def _npz_bytes(parts: Iterable[Answers]) -> Iterator[bytes]:
    """All at once: an npz file holds whole arrays."""
    every = list(parts)
    found = FoundAnswers.joined([part.found for part in every])
    arrays: dict[str, Any] = {
        "item": np.array([item for part in every for item in part.items]),
        "label": found.labels,
        "classes": found.classes,
        "probability": found.probabilities,
        "novelty": found.novelty,
    }
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    yield buffer.getvalue()


def _parquet_bytes(parts: Iterable[Answers]) -> Iterator[bytes]:
    arrow = require("pyarrow", "arrow", "--out with a name in .parquet")
    parquet = require("pyarrow.parquet", "arrow", "--out with a name in .parquet")
    kinds = {"U": arrow.string(), "b": arrow.bool_(), "f": arrow.float64()}
    sink, writer, schema = Sink(), None, None
    for part in parts:
        rows = [_flat(record) for record in part.records()]
        if writer is None:
            types = {"item": arrow.string(), "novelty": arrow.float64()}
            types["label"] = kinds.get(part.found.labels.dtype.kind, arrow.int64())
            of_class = kinds.get(part.found.classes.dtype.kind, arrow.int64())
            schema = arrow.schema(
                (name, types.get(name, arrow.float64() if "probability" in name else of_class))
                for name in _columns(rows)
            )
            writer = parquet.ParquetWriter(sink, schema)
        writer.write_table(arrow.Table.from_pylist(rows, schema))
        yield sink.taken()
    if writer is not None:
        writer.close()
        yield sink.taken()


_WRITERS: dict[str, Callable[[Iterable[Answers]], Iterator[bytes]]] = {
    ".csv": _csv_bytes,
    ".jsonl": _jsonl_bytes,
    ".npz": _npz_bytes,
    ".parquet": _parquet_bytes,
}


# --------------------------------------------------------------------------------------- accuracy
def note_accuracy(labels: Array, classes: Array, y: Array) -> None:
    """Say how many labels are right; classes that the model does not know are counted apart."""
    known = np.isin(y, classes)
    n_known = int(known.sum())
    if n_known:
        right = (labels[known] == y[known]).mean()
        note(f"accuracy: {100 * right:.2f} % of {plural(n_known, 'row')}")
    if n_known < len(y):
        unknown = list(dict.fromkeys(y[~known].tolist()))
        shown = ", ".join(map(str, unknown[:5])) + (", …" if len(unknown) > 5 else "")
        left = len(y) - n_known
        note(
            f"{plural(left, 'row')} of classes that the model does not know ({shown}) "
            f"{'is' if left == 1 else 'are'} not counted"
        )
