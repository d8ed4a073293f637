"""The command line: parse, call, print; nothing else."""

from __future__ import annotations

import json
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

from dkvb import __version__

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


class Order(StrEnum):
    """How the rows of the train file arrive."""

    class_incremental = "class-incremental"
    iid = "iid"


class Device(StrEnum):
    """Where to compute."""

    cpu = "cpu"
    cuda = "cuda"


Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas.")]
Out = Annotated[Path, typer.Option(help="Folder for records, summary and picture.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, not as a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


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


@app.command()
def evaluate(
    train: Annotated[Path, typer.Option(help="npz file with x (n, m) and labels y (n,).")],
    test: Annotated[Path, typer.Option(help="npz file with x and y to test on.")],
    classifier: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[:key=value,...]", help="What to evaluate; give it several times."
        ),
    ],
    out: Out,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="npz file with x to fit keys to; without it, the train rows, unlabelled."
        ),
    ] = None,
    classes_per_stage: Annotated[int, typer.Option(help="New classes in each stage.")] = 2,
    order: Annotated[
        list[Order] | None,
        typer.Option(help="How rows arrive: class-incremental unless given; may be given twice."),
    ] = None,
    seeds: Seeds = "1",
    epochs: Annotated[
        int | None, typer.Option(help="Epochs a stage, for classifiers that train in epochs.")
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Test each so many epochs too, not only after each stage.")
    ] = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Test only after the last stage: faster.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run classifiers through a stream and compare them, over seeds."""
    with _clear_errors():
        from dkvb.comparison import Comparison, Data, parse_spec
        from dkvb.embeddings_file import read_embeddings, read_labelled

        comparison = Comparison(
            classifiers=tuple(parse_spec(text) for text in classifier),
            seeds=_parse_seeds(seeds),
            orders=tuple(str(o) for o in order or [Order.class_incremental]),
            classes_per_stage=classes_per_stage,
            epochs=epochs,
            evaluate_every=evaluate_every,
            at_end=at_end,
            device=_available(device),
        )
        x, y = read_labelled(train, "--train")
        test_rows = read_labelled(test, "--test", width=x.shape[1], like=y)
        key_rows = x if keys is None else read_embeddings(keys, "--keys", width=x.shape[1])
        data = Data((x, y), test_rows, key_rows)
        comparison.rehearse(data)
        _make_folder(out)

    from dkvb.records import append_record, summarise

    records = []
    with _short_warnings():
        for record in comparison.run(data, progress=_show_progress(quiet)):
            append_record(out / "records.jsonl", record)
            records.append(record)
    summary = summarise(records)
    (out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    picture = _draw_curves(records, out / "accuracy.png")
    if not quiet:
        seed_word = f"{len(comparison.seeds)} seed{'s' * (len(comparison.seeds) > 1)}"
        _show(
            summary, as_json, f"{', '.join(comparison.orders)}, {seed_word}: mean ± std, in percent"
        )
        if picture and not as_json:
            typer.echo(f"picture: {picture}")


@app.command()
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
    with _clear_errors():
        from importlib import import_module

        from dkvb import _validate

        if name is None:
            raise ValueError("NAME: expected an experiment; dkvb reproduce --list names them")
        _validate.one_of("NAME", name, EXPERIMENTS)
        wanted_seeds = _parse_seeds(seeds)
        folder = _make_folder(out or Path("runs") / name)
    module = import_module(f"dkvb.paper.{name.replace('-', '_')}")
    with _short_warnings():
        summary = module.run(list(wanted_seeds), folder, _show_progress(quiet))
    if not quiet:
        _show(summary, as_json, name)
        if not as_json:
            typer.echo(f"results: {folder}")


@app.command()
def demo(out: Out = Path("demo-output"), quiet: Quiet = False) -> None:
    """Learn real images two classes at a time, in under a minute."""
    with _clear_errors():
        folder = _make_folder(out)
    from dkvb.demo import run

    with _short_warnings():
        shown = run(folder, _show_progress(quiet))
    if not quiet:
        _show(shown["table"], as_json=False, title=shown["title"])
        typer.echo(f"picture: {shown['picture']}")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Bad input ends with one line and exit code 2, not with a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        message = Text(f"error: {' '.join(str(error).split())}", style="bold red")
        Console(stderr=True).print(message, soft_wrap=True)
        raise typer.Exit(2) from error


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Warnings as one line each, without the source line they came from."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: Console(stderr=True).print(
            Text(f"warning: {message}", style="yellow"), soft_wrap=True
        )
        yield


def _show_progress(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


def _parse_seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds: expected whole numbers from 0, such as 1,2,3; got {text!r}")
    return tuple(int(part) for part in parts)


def _available(device: Device) -> str:
    import torch

    if device is Device.cuda and not torch.cuda.is_available():
        raise ValueError(
            "--device: expected a device that is here; got cuda, and torch sees none; use cpu"
        )
    return str(device)


def _make_folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise ValueError(f"--out: expected a folder; got the file {path}; choose another name")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _draw_curves(records: list[Any], path: Path) -> Path | None:
    try:
        from dkvb.plots import accuracy_curves

        return accuracy_curves(records, path)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return None  # a comparison without matplotlib is a comparison still, only without a picture


_COLUMNS = {
    "final_accuracy": "final\naccuracy",
    "average_incremental_accuracy": "average\nincremental",
    "forgetting": "forgetting",
    "learn_seconds": "learning\n(seconds)",
}


def _show(summary: Mapping[str, Mapping[str, Any]], as_json: bool, title: str) -> None:
    """Print a summary: a row a classifier, a column a metric."""
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    metrics = list(dict.fromkeys(metric for row in summary.values() for metric in row))
    if set(metrics) >= _COLUMNS.keys():
        metrics = list(_COLUMNS)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("classifier", overflow="fold")
    for metric in metrics:
        table.add_column(
            _COLUMNS.get(metric, metric.replace("_", " ")), justify="right", no_wrap=True
        )
    for classifier, row in summary.items():
        table.add_row(classifier, *(_cell(row.get(metric)) for metric in metrics))
    # A pipe has no width to keep to.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping) and {"mean", "std"} <= value.keys():
        return "-" if value["mean"] is None else f"{value['mean']:.2f} ± {value['std']:.2f}"
    if isinstance(value, list):
        return "  ".join(_cell(item) for item in value)
    return f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)
