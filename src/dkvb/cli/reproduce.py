"""`dkvb reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer
from rich.console import Console

from dkvb.cli._shared import (
    AsJson,
    Device,
    Quiet,
    available,
    clear_errors,
    make_folder,
    note,
    output_width,
    parse_seeds,
    short_warnings,
    show,
    show_progress,
    silence,
)


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Experiments; --list names them."),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder with embedding files DATASET-ENCODER-SPLIT.npz.")
    ] = Path("embeddings"),
    encoder: Annotated[
        str, typer.Option(help="Encoder of the embeddings, by its name in dkvb embed or the paper.")
    ] = "resnet50",
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET[:EPOCHS]",
            help="Data set to fit keys to, and for how many epochs; default: the paper's "
            "(CIFAR-100, 10 epochs; ImageNet data sets 1 epoch).",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Random seeds, separated by commas; default: 1,2,3,4,5, or 1 with --quick."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, few epochs, bundled data.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only classifiers whose names begin so; may be repeated."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the configuration."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results; default: runs/NAME. With several experiments, OUT/NAME."
        ),
    ] = None,
    device: Annotated[Device, typer.Option(help="Device to compute on.")] = Device.cpu,
    plot_only: Annotated[
        bool, typer.Option("--plot-only", help="Only write table and figure from existing records.")
    ] = False,
    no_plot: Annotated[
        bool, typer.Option("--no-plot", help="Write records and table, but no figure.")
    ] = False,
    list_all: Annotated[
        bool, typer.Option("--list", help="List the experiments and where they were measured.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run experiments of the paper.

    Runs with a record in the folder are not repeated: a killed command continues.
    """
    from dkvb.evaluation.paper import EXPERIMENTS, load_experiment

    if list_all:
        from dkvb.evaluation.paper.status import read_status

        status = read_status()
        if as_json:
            described = {
                listed: {"paper": text, "status": status.get(listed, "not measured")}
                for listed, text in EXPERIMENTS.items()
            }
            show(described, as_json, "")
            return
        for listed, text in EXPERIMENTS.items():
            line = f"{listed:<18}{text} | {status.get(listed, 'not measured')}"
            typer.echo("\n".join(_lines(line, 18)))
        return
    with clear_errors():
        from dkvb._support import validation
        from dkvb._support.optional import require

        if not no_plot:
            require("matplotlib", "plots", "dkvb reproduce")
        if not names:
            raise ValueError("NAME: expected an experiment; dkvb reproduce --list names them")
        for name in names:
            validation.one_of("NAME", name, EXPERIMENTS)
        from dkvb.evaluation.grid import one_thread
        from dkvb.evaluation.paper import experiment
        from dkvb.evaluation.paper.encoders import canonical_name, parse_keys
        from dkvb.evaluation.paper.source import Bundled, Prepared

        source = Bundled() if quick else Prepared(data, canonical_name(encoder))
        key_data = None if keys is None else parse_keys(keys)
        wanted_seeds = parse_seeds(seeds or ("1" if quick else "1,2,3,4,5"))
        changes = _changes(change or [])
        where = available(device)
        folders = {
            name: (out / name if len(names) > 1 else out) if out else Path("runs") / name
            for name in names
        }
    known: dict[str, Any] = {}  # records of the previous experiments
    for name, folder in folders.items():
        with clear_errors(), short_warnings():
            if plot_only:
                if change or seeds or keys or only:
                    raise ValueError(
                        "--plot-only: expected neither --set nor --seeds nor --keys nor --only, "
                        "since nothing is run; leave them out"
                    )
                summary = experiment.plot_only(name, folder, silence if quiet else note)
            else:
                setup, all_changes = experiment.make_setup(
                    name,
                    source,
                    wanted_seeds,
                    quick=quick,
                    changes=changes,
                    keys=key_data,
                    device=where,
                )
                jobs = experiment.select_jobs(load_experiment(name).make_jobs(setup), only)
                experiment.check_folder(name, folder)
                make_folder(folder)
        if not plot_only:
            with clear_errors(), short_warnings(), one_thread() if quick else nullcontext():
                summary, records = experiment.run_experiment(
                    name,
                    jobs,
                    folder,
                    changes=all_changes,
                    reusable=known,
                    plot=not no_plot,
                    progress=show_progress(quiet),
                    log=silence if quiet else note,
                )
            known |= {record.run_id: record for record in records}
        if as_json or not quiet:
            _print(summary, folder, as_json, quick or summary["kind"] == "quick")


def _lines(text: str, indent: int) -> list[str]:
    """A text in lines as wide as the terminal, or as COLUMNS says; else in one."""
    if output_width() is not None:
        return [text]
    return wrap(
        text, Console().width, subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _changes(texts: list[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in texts]
    for text, (field, equals, value) in zip(texts, parts, strict=True):
        if not (field and equals and value):
            raise ValueError(f"--set: expected FIELD=VALUE; got {text!r}")
    fields = [field.strip() for field, _, _ in parts]
    twice = next((field for field in fields if fields.count(field) > 1), None)
    if twice is not None:
        raise ValueError(f"--set {twice}: expected once; got it {fields.count(twice)} times")
    return dict(zip(fields, (value.strip() for _, _, value in parts), strict=True))


def _print(summary: dict[str, Any], folder: Path, as_json: bool, quick: bool) -> None:
    if as_json:
        show(summary, as_json, "")
        return
    show(summary["rows"], as_json, summary["title"], first="")
    for verdict in summary["statements"]:
        decided = "quick run: decides nothing" if quick else verdict["verdict"]
        typer.echo(f"{decided}: {verdict['statement']}: {verdict['evidence']}")
    typer.echo(f"results: {folder}")
