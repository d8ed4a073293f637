"""`dkvb evaluate`: classifiers through a stream, compared over seeds."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._rows import Source, check_same_encoder
from dkvb.cli._shared import (
    AsJson,
    Device,
    Out,
    Quiet,
    Seeds,
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


class Order(StrEnum):
    """How the rows of the train file arrive."""

    class_incremental = "class-incremental"
    iid = "iid"


def evaluate(
    train: Annotated[Path, typer.Option(help="npz file with x (n, m) and labels y (n,).")],
    test: Annotated[Path, typer.Option(help="npz file with x and y to test on.")],
    classifier: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[:key=value,...]",
            help="What to evaluate: bottleneck, ranpac, slda, … (a wrong name lists all of them); "
            "give it several times.",
        ),
    ],
    out: Out,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="npz file with x to fit keys to; without it, the train rows, unlabelled."
        ),
    ] = None,
    classes_per_task: Annotated[int, typer.Option(help="New classes in each task.")] = 2,
    order: Annotated[
        list[Order] | None,
        typer.Option(help="How rows arrive: class-incremental unless given; may be given twice."),
    ] = None,
    seeds: Seeds = "1",
    epochs: Annotated[
        int | None, typer.Option(help="Epochs a task, for classifiers that train in epochs.")
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Test each so many epochs too, not only after each task.")
    ] = None,
    final_only: Annotated[
        bool, typer.Option("--final-only", help="Test only after the last task: faster.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run classifiers through a stream and compare them, over seeds.

    Runs that the folder has records of already are not run again.
    Table, summary and picture are of the runs asked for; records of others stay.
    """
    with clear_errors():
        from dkvb.benchmark.grid import Data, Grid, parse_spec
        from dkvb.embedding.npz import read_embeddings, read_encoder, read_labelled

        grid = Grid(
            classifiers=tuple(parse_spec(text) for text in classifier),
            seeds=parse_seeds(seeds),
            orders=tuple(str(o) for o in order or [Order.class_incremental]),
            classes_per_task=classes_per_task,
            epochs=epochs,
            evaluate_every=evaluate_every,
            final_only=final_only,
            device=available(device),
        )
        source = Source(*read_encoder(train, "--train"))
        for option, path in (("--test", test), ("--keys", keys)):
            if path is not None:
                own = Source(*read_encoder(path, option))
                check_same_encoder(f"{option} {path}", own, source)
        x, y = read_labelled(train, "--train")
        test_rows = read_labelled(test, "--test", width=x.shape[1], like=y)
        if not set(test_rows[1].tolist()) & set(y.tolist()):
            raise ValueError(
                f"--test {test}, y: expected labels that the train file has; got none of them; "
                "use the same names or numbers in both files"
            )
        key_rows = x if keys is None else read_embeddings(keys, "--keys", width=x.shape[1])
        names = {"train": train.name, "test": test.name, "keys": (keys or train).name}
        data = Data((x, y), test_rows, key_rows, names)
        grid.smoke_test(data)
        make_folder(out)

    from dkvb._support import process_group
    from dkvb.benchmark.jobs import run_missing
    from dkvb.benchmark.records import summarise, write_summary

    with clear_errors(), short_warnings():
        records = run_missing(
            grid.make_jobs(data),
            out / "records.jsonl",
            progress=show_progress(quiet),
            log=silence if quiet else note,
        )
    if process_group.rank() > 0:
        return
    with clear_errors():
        summary = summarise(records)
        write_summary(out / "summary.json", summary)
        picture = _draw_curves(records, out / "accuracy.png")
    if as_json or not quiet:
        seed_word = f"{len(grid.seeds)} seed{'s' * (len(grid.seeds) > 1)}"
        show(summary, as_json, f"{', '.join(grid.orders)}, {seed_word}: mean ± std, in percent")
        if picture and not as_json:
            typer.echo(f"picture: {picture}")


def _draw_curves(records: list[Any], path: Path) -> Path | None:
    from dkvb._support.optional import MissingPackageError

    try:
        from dkvb.benchmark.plots import plot_accuracy

        return plot_accuracy(records, path)
    except MissingPackageError as error:
        note(f"no picture: {error}")  # the results are complete without it
        return None
