"""The paper's experiments by name, and the page of results.

python -m paper list
python -m paper run toy pairs --quick --out runs
python -m paper report runs
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._shared import (
    AsJson,
    Device,
    Quiet,
    available,
    clear_errors,
    make_folder,
    note,
    parse_seeds,
    short_warnings,
    show,
    show_progress,
    silence,
)

RESULTS = Path(__file__).parents[1] / "results"

app = typer.Typer(
    help="Experiments of the paper, the claims they decide, and the page of results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command("list")
def list_experiments(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Records; default: this repository's.")
    ] = RESULTS,
    as_json: AsJson = False,
) -> None:
    """List the experiments and where they were measured."""
    from paper.experiments import EXPERIMENTS

    with clear_errors():
        from paper.report import build

        status = build(folder).status
    if as_json:
        described = {
            name: {"paper": text, "status": status[name]} for name, text in EXPERIMENTS.items()
        }
        show(described, as_json, "")
        return
    for name, text in EXPERIMENTS.items():
        typer.echo(f"{name:<18}{text}\n{'':<18}{status[name]}")


@app.command()
def run(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Experiments, by their names in `list`.")
    ],
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
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run experiments. Runs with a record in the folder are not repeated."""
    with clear_errors():
        from dkvb._support import validation
        from dkvb._support.optional import require
        from dkvb.evaluation.grid import one_thread
        from paper import experiment
        from paper.encoders import canonical_name, parse_keys
        from paper.experiments import EXPERIMENTS, load_experiment
        from paper.source import Bundled, Prepared

        if not no_plot:
            require("matplotlib", "plots", "python -m paper run")
        for name in names:
            validation.one_of("NAME", name, EXPERIMENTS)
        if plot_only and (change or seeds or keys or only):
            raise ValueError(
                "--plot-only: expected neither --set nor --seeds nor --keys nor --only, since "
                "nothing is run; leave them out"
            )
        source = Bundled() if quick else Prepared(data, canonical_name(encoder))
        key_data = None if keys is None else parse_keys(keys)
        wanted_seeds = parse_seeds(seeds or ("1" if quick else "1,2,3,4,5"))
        changes = _changes(change or [])
        where = available(device)
        folders = {
            name: (out / name if len(names) > 1 else out) if out else Path("runs") / name
            for name in names
        }
    log = silence if quiet else note
    known: dict[str, Any] = {}  # records of the previous experiments
    for name, folder in folders.items():
        with clear_errors(), short_warnings():
            if plot_only:
                summary = experiment.plot_only(name, folder, log)
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
                with one_thread() if quick else nullcontext():
                    summary, records = experiment.run_experiment(
                        name,
                        jobs,
                        folder,
                        changes=all_changes,
                        reusable=known,
                        plot=not no_plot,
                        progress=show_progress(quiet),
                        log=log,
                    )
                known |= {record.run_id: record for record in records}
        if as_json or not quiet:
            _print(summary, folder, as_json)


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Records; default: this repository's.")
    ] = RESULTS,
    out: Annotated[
        Path | None, typer.Option(help="Page to write; default: FOLDER/report.md.")
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option(help="Also write the paragraph on the paper into this Markdown file."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a page: the paper's claims and numbers beside ours, tables and figures.

    It is made from records alone. The figures are in a folder of its name beside it.
    """
    with clear_errors():
        from dkvb._support.files.atomic import replace_file
        from dkvb._support.optional import require
        from paper.report import build
        from paper.report.sentences import replace_block

        require("matplotlib", "plots", "python -m paper report")
        path = out or folder / "report.md"
        if path.is_dir() or path.suffix != ".md":
            raise ValueError(f"--out: expected a file whose name ends in .md; got {path}")
        made = build(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [made.markdown(path.with_suffix("")).encode()])
        if readme is not None:
            replaced = replace_block(readme.read_text(encoding="utf-8"), made.sentences)
            replace_file(readme, [replaced.encode()])
    if as_json:
        show(made.summary(), as_json, "")
    elif not quiet:
        for line in made.collection.notes:
            note(line)
        typer.echo(f"{made.sentences}\npage: {path}")


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


def _print(summary: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        show(summary, as_json, "")
        return
    show(summary["rows"], as_json, summary["title"], first="")
    full = summary["kind"] == "full"
    for line in summary["claims"]:
        decided = line["verdict"] if full else f"{summary['kind']} run, decides nothing"
        typer.echo(f"{line['claim']}: {decided}: {line['numbers']}")
    typer.echo(f"results: {folder}")


if __name__ == "__main__":
    app(prog_name="python -m paper")
