"""`dkvb evaluate`: cross-validation, the accuracy of a model, or classifiers on a stream."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._items import DEFAULTS, ItemOptions, with_item_options
from dkvb.cli._rows import (
    CLASSIFIERS,
    DATA_HELP,
    AllowDownload,
    LabelledRows,
    Source,
    check_same_encoder,
    read_rows,
)
from dkvb.cli._shared import (
    AsJson,
    Device,
    Quiet,
    Seeds,
    available,
    clear_errors,
    make_folder,
    note,
    parse_seeds,
    plural,
    short_warnings,
    show,
    show_progress,
    silence,
)


class Order(StrEnum):
    """Order of the training data."""

    class_incremental = "class-incremental"
    iid = "iid"
    blurry = "blurry"


@partial(
    with_item_options,
    encoder_help="Encoder: required for images and texts, unless the model of --model stores one.",
)
def evaluate(
    data: Annotated[
        str | None, typer.Option(help=f"Labelled data to cross-validate on. {DATA_HELP}")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="With --data: test this model instead of training.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="Embeddings and labels to train on: npz, Parquet, Arrow.")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="The same to test on.")] = None,
    classifier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:key=value,...]",
            help=f"Classifier to train: {CLASSIFIERS}, or module:Class of your own with "
            "scikit-learn's partial_fit; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for records, summary and picture; required with --train."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="Embeddings to fit keys to; default: the training embeddings."),
    ] = None,
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    folds: Annotated[int, typer.Option(help="Folds of cross-validation.")] = 5,
    classes_per_task: Annotated[int, typer.Option(help="New classes per task.")] = 2,
    order: Annotated[
        list[Order] | None,
        typer.Option(help="Order of the training data; may be repeated.", show_default=False),
    ] = None,
    blurry_percent: Annotated[
        int, typer.Option(help="Of a blurry stream: share of each class in other tasks (%).")
    ] = 10,
    imbalance_factor: Annotated[
        float | None,
        typer.Option(help="Long-tailed training data: largest class divided by the smallest."),
    ] = None,
    seeds: Seeds = "1",
    epochs: Annotated[
        int | None, typer.Option(help="Epochs per task, for classifiers that train in epochs.")
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Also evaluate every so many epochs.")
    ] = None,
    final_only: Annotated[
        bool, typer.Option("--final-only", help="Evaluate after the last task only: faster.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Device to compute on.")] = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure accuracy: by cross-validation, of a model, or over a stream of classes.

    --data: stratified cross-validation of the default classifier and of nearest class mean.

    --data and --model: accuracy of a model; labels that it does not know are reported apart.

    --train and --test, with --classifier and --out: train classifiers on a stream, over seeds. Runs
    with a record in the folder are not repeated; table, summary and picture are of the requested
    runs.
    """
    with clear_errors(), short_warnings():
        if data is not None:
            if train or test or keys:
                raise ValueError("--data: expected without --train, --test and --keys; got both")
            if model is not None and classifier:
                raise ValueError("--classifier: expected without --model, which has its own")
            from dkvb.cli._scores import evaluate_data

            summary = evaluate_data(
                data, encoder, model=model, classifiers=classifier or [], n_folds=folds,
                seed=parse_seeds(seeds)[0], device=device, allow_download=allow_download,
                as_json=as_json, quiet=quiet,
            )  # fmt: skip
            if out is not None:
                from dkvb.evaluation.records import write_summary

                write_summary(make_folder(out) / "summary.json", summary)
            return
    with clear_errors():
        from dkvb.evaluation.grid import Grid, parse_spec

        if model is not None:
            raise ValueError("--model: expected with --data; got no data to test it on")
        if train is None or test is None:
            raise ValueError("evaluate: expected --data, or both --train and --test")
        if not classifier or out is None:
            missing = "--out" if classifier else "--classifier"
            raise ValueError(f"{missing}: expected with --train and --test; got none")
        grid = Grid(
            classifiers=tuple(parse_spec(text) for text in classifier),
            seeds=parse_seeds(seeds),
            orders=tuple(str(o) for o in order or [Order.class_incremental]),
            classes_per_task=classes_per_task,
            blurry_percent=blurry_percent,
            imbalance_factor=imbalance_factor,
            epochs=epochs,
            evaluate_every=evaluate_every,
            final_only=final_only,
            device=available(device),
        )
        stream_data = _read(train, test, keys, silence if quiet else note)
        grid.smoke_test(stream_data)
        make_folder(out)
    _run(grid, stream_data, out, as_json, quiet)


def _read(train: Path, test: Path, keys: Path | None, log: Any) -> Any:
    """Read training, test and key data; test samples of unknown labels are left out."""
    import numpy as np

    from dkvb.evaluation.grid import Data

    learned = _read_file(train, "--train", None)
    X, y = learned.x, learned.y
    tested = _read_file(test, "--test", learned)
    X_test, y_test = tested.x, tested.y
    known = np.isin(y_test, y)
    if not known.any():
        raise ValueError(
            f"--test {test}, y: expected labels that the train file has; got none of them; "
            "use the same names or numbers in both files"
        )
    if not known.all():
        labels = np.unique(y_test[~known]).tolist()
        named = ", ".join(map(str, labels[:5])) + (", …" if labels[5:] else "")
        log(
            f"--test {test}: {plural(int((~known).sum()), 'sample')} of labels that the train file "
            f"lacks are not counted: {named}"
        )
        X_test, y_test = X_test[known], y_test[known]
    key_data = X if keys is None else _read_file(keys, "--keys", learned, labelled=False).x
    names = {"train": train.name, "test": test.name, "keys": (keys or train).name}
    return Data((X, y), (X_test, y_test), key_data, names)


def _read_file(
    path: Path, option: str, like: LabelledRows | None, labelled: bool = True
) -> LabelledRows:
    """Embeddings of the same encoder as those before: of an npz file, or of a table."""
    from dkvb.embedding.npz import read_embeddings, read_encoder, read_labelled

    if path.suffix != ".npz" and path.exists():
        return read_rows(
            str(path), DEFAULTS, labelled=labelled, device="cpu", like=like, option=option,
            quiet=True,
        )  # fmt: skip
    source = Source(*read_encoder(path, option))
    check_same_encoder(f"{option} {path}", source, like)
    width = None if like is None else like.width
    if not labelled:
        return LabelledRows(read_embeddings(path, option, width=width), None, *source)
    known = None if like is None else like.y
    return LabelledRows(*read_labelled(path, option, width=width, like=known), *source)


def _run(grid: Any, data: Any, out: Path, as_json: bool, quiet: bool) -> None:
    from dkvb.evaluation.jobs import run_missing
    from dkvb.evaluation.records import summarise, write_summary

    with clear_errors(), short_warnings():
        records = run_missing(
            grid.make_jobs(data),
            out / "records.jsonl",
            progress=show_progress(quiet),
            log=silence if quiet else note,
        )
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
        from dkvb.evaluation.plots import plot_accuracy

        return plot_accuracy(records, path)
    except MissingPackageError as error:
        note(f"no picture: {error}")  # the results are complete without it
        return None
