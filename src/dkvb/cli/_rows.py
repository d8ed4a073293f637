"""Rows for the commands that change or ask a model: embeddings, or anything with an encoder."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import typer

from dkvb.cli._items import ItemOptions
from dkvb.cli._scratch import scratch_folder
from dkvb.cli._shared import note, printable, show_progress

DATA_HELP = (
    "Embeddings and labels: npz file with x (n, m) and y (n,), Parquet file or folder, Arrow file, "
    "Hugging Face dataset on disk, Lance dataset, x.npy beside y.npy. With an encoder also an "
    "image, a folder of images, or a CSV or JSONL file of texts or paths."
)
CLASSIFIERS = (
    "kernel, bottleneck, linear, mlp, sdmlp, ewc, fly, prototypes, slda, ranpac, neighbours"
)
Data = Annotated[str, typer.Option(help=DATA_HELP)]
AllowDownload = Annotated[
    bool,
    typer.Option(
        "--allow-download",
        help="Allow contacting a server for the encoder that the model names.",
    ),
]


_FILES = (".npz", ".parquet", ".arrow", ".feather")  # of embeddings, among items


class Embedded(Protocol):
    """What came from an encoder: rows, or a model that learned rows."""

    @property
    def encoder(self) -> str | None:
        """The encoder's name, if it is known."""

    @property
    def encoder_fingerprint(self) -> str | None:
        """What tells its weights and settings from others, if it is known."""


class Reference(Embedded, Protocol):
    """What more rows have to be like."""

    @property
    def width(self) -> int | None:
        """How many numbers a row has, if it is known."""


class LabelledRows(NamedTuple):
    """Embeddings (n, m), labels (n,) where there are any, and the encoder that made them."""

    x: Any
    y: Any
    encoder: str | None
    encoder_fingerprint: str | None
    names: list[str] | None = None  # of files, or texts; None where rows have numbers only

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return int(self.x.shape[1])


class Source(NamedTuple):
    """An encoder, as far as it is known."""

    encoder: str | None
    encoder_fingerprint: str | None


def read_rows(
    data: str,
    items: ItemOptions,
    *,
    labelled: bool,
    device: str,
    like: Reference | None = None,
    option: str = "--data",
    quiet: bool = False,
    allow_download: bool = False,
    keep: bool = True,
) -> LabelledRows:
    """The rows that `option` names; labels are read where they are needed, or there.

    Rows of another encoder or width than those of `like` are refused; its encoder is taken unless
    another is named. Rows that name no encoder are taken, with a note unless `quiet`.
    An encoder that only `like` names is downloaded only if `allow_download`. With `keep` the
    embeddings of items stay in the cache, and what is there already is not embedded again.
    """
    rows = _from_file(Path(data), items, labelled, like, option)
    if rows is not None:
        if not quiet:
            _note_unnamed(f"{option} {data}", rows, like)
        return rows
    _check_found(data, option)
    model, source = _encoder_for(data, items, device, like, option, allow_download)
    dataset = _dataset(data, model.takes, items)
    if labelled and dataset.labels is None:
        raise ValueError(f"{option}: expected items with labels; {data} has none")
    if keep:
        return _embedded(model, source, dataset, items, quiet, items.cache)
    with scratch_folder() as cache:
        return _embedded(model, source, dataset, items, quiet, Path(cache))


def read_items(
    items: list[str],
    options: ItemOptions,
    *,
    device: str,
    like: Reference,
    quiet: bool = False,
    allow_download: bool = False,
) -> LabelledRows:
    """Return embeddings of single items: images, texts, or what standard input holds ("-")."""
    how: dict[str, Any] = {"device": device, "like": like, "allow_download": allow_download}
    if len(items) == 1 and (items[0].endswith(_FILES) or Path(items[0]).is_dir()):
        return read_rows(items[0], options, labelled=False, option="ITEM", quiet=quiet, **how)
    model, source = _encoder_for(items[0], options, device, like, "ITEM", allow_download)
    if items == ["-"]:
        dataset = _standard_input(model.takes)
    elif model.takes == "text":
        dataset = _named_texts(items)
    else:
        missing = [item for item in items if not Path(item).is_file()]
        if missing:
            raise ValueError(f"ITEM: expected files of images; found no file at {missing[0]}")
        from dkvb.embedding.datasets.dataset import image_files

        dataset = image_files("items", [Path(item) for item in items], None)
    with scratch_folder() as cache:
        return _embedded(model, source, dataset, options, quiet, Path(cache))


def _encoder_for(
    what: str,
    options: ItemOptions,
    device: str,
    like: Reference | None,
    option: str,
    allow_download: bool,
) -> tuple[Any, Source]:
    """The encoder for items, which must be the one that made what was learned before."""
    name = options.encoder or (like.encoder if like else None)
    if name is None:
        raise ValueError(
            f"--encoder: expected the name of an encoder, since {what} is no file of embeddings "
            "(npz, npy, pt, Parquet, Arrow, or a CSV file of numbers); got none; name one, or "
            "embed first with dkvb embed"
        )
    from dkvb.embedding import load_encoder

    trusted = allow_download or options.encoder is not None
    model = load_encoder(name, weights=options.weights, device=device, allow_download=trusted)
    source = source_of(name, model)
    check_same_encoder(f"{option} {what}", source, like)
    _check_same_width(f"{option} {what}", model.dimension, like)
    return model, source


def _check_found(data: str, option: str) -> None:
    """Raise where data is no file, no folder, and no name of a data set."""
    from dkvb.embedding.datasets import NAMES

    name, _, rest = data.partition(":")
    if name in NAMES or (name == "hf" and rest) or Path(data).expanduser().exists():
        return
    raise ValueError(
        f"{option}: found nothing at {data}; expected a file or folder, hf:NAME, or one of "
        f"{', '.join(NAMES)}"
    )


def _dataset(data: str, kind: str, options: ItemOptions) -> Any:
    from dkvb.embedding import load_dataset
    from dkvb.embedding.datasets.dataset import image_files
    from dkvb.embedding.datasets.folders import IMAGE_SUFFIXES

    path = Path(data).expanduser()
    if kind == "image" and path.is_file() and path.name.lower().endswith(IMAGE_SUFFIXES):
        return image_files(data, [path], None)
    return load_dataset(
        data,
        options.split,
        kind=kind,
        column=options.column,
        label_column=options.label_column,
    )


def _standard_input(kind: str) -> Any:
    """One text per line, or one image."""
    from dkvb.embedding.datasets.dataset import Dataset, decode_image

    if kind == "text":
        lines = [line.rstrip("\r\n") for line in sys.stdin]
        return _named_texts([line for line in lines if line.strip()])
    content = sys.stdin.buffer.read()
    return Dataset("standard input", kind, 1, lambda i: content, decode_image, lambda i: "-")


def _named_texts(contents: list[str]) -> Any:
    from dkvb.embedding.datasets.dataset import texts

    return replace(texts("items", contents), item_name=lambda i: contents[i])


def _embedded(
    model: Any,
    source: Source,
    dataset: Any,
    options: ItemOptions,
    quiet: bool,
    cache: Path | None,
) -> LabelledRows:
    from dkvb.embedding import UnreadableItemsError, embed

    try:
        found = embed(
            model, dataset, cache, on_error=options.on_error, progress=show_progress(quiet)
        )
    except UnreadableItemsError as error:
        name_skipped(error.skipped)
        raise
    if not quiet:
        name_skipped(found.skipped)
    return LabelledRows(found.array(), found.labels, *source, names_of(dataset, found.items))


def names_of(dataset: Any, items: Any) -> list[str]:
    """What to call each item: its text, or the name of its file."""
    is_text = dataset.kind == "text"
    return [dataset.item(i) if is_text else dataset.item_name(i) for i in items.tolist()]


def name_skipped(skipped: list[Any], most: int = 50) -> None:
    """Say which items have no embedding, and why."""
    if skipped:
        note(f"{len(skipped)} without an embedding:")
    for item in skipped[:most]:
        note(printable(f"  {item.name}: {item.reason}"))
    if len(skipped) > most:
        note(f"  and {len(skipped) - most} more")


def source_of(name: str, encoder: Any) -> Source:
    """What to remember of an encoder that was loaded by that name."""
    from dkvb.embedding import absolute_name, encoder_fingerprint

    return Source(absolute_name(name), encoder_fingerprint(encoder.identity))


def check_same_encoder(what: str, got: Embedded, expected: Embedded | None) -> None:
    """Refuse what came from another encoder; where either is not known, nothing can be said."""
    if expected is None or not (expected.encoder_fingerprint and got.encoder_fingerprint):
        return
    if got.encoder_fingerprint != expected.encoder_fingerprint:
        raise ValueError(
            f"{what}: expected embeddings by {_shown(expected)}, as before; got embeddings by "
            f"{_shown(got)}: its weights or settings differ; embed with the weights, layer and "
            "pooling of before (dkvb embed), or fit a new model"
        )


def _check_same_width(what: str, width: int, expected: Reference | None) -> None:
    if expected and expected.width is not None and width != expected.width:
        made_by = f" by {expected.encoder}" if expected.encoder else ""
        raise ValueError(
            f"{what}: expected rows of width {expected.width}, as before; got width {width}; give "
            f"embeddings{made_by} as before (dkvb embed), or fit a new model"
        )


def _note_unnamed(what: str, got: Embedded, expected: Embedded | None) -> None:
    """Say that nothing could be checked of rows that do not tell what made them."""
    if expected and expected.encoder and not (got.encoder or got.encoder_fingerprint):
        note(
            f"{what} names no encoder: taken for embeddings by {expected.encoder}, as before; "
            "dkvb embed writes the name into its files, --encoder gives it here"
        )


def _shown(source: Embedded) -> str:
    return f"{source.encoder or 'an encoder'} (fingerprint {str(source.encoder_fingerprint)[:8]})"


def _from_file(
    path: Path, options: ItemOptions, labelled: bool, like: Reference | None, option: str
) -> LabelledRows | None:
    """Embeddings that a file holds; None for files and folders of items."""
    from dkvb.embedding import absolute_name, arrow
    from dkvb.embedding.datasets import prepared, tables

    if path.suffix == ".npz":
        return _from_npz(path, options.encoder, labelled, like, option)
    if arrow.is_table(path):
        return _from_table(path, options, labelled, like, option)
    path = path / "x.npy" if prepared.is_npy_pair(path) else path
    if not path.is_file():
        return None
    if path.suffix in prepared.SUFFIXES:
        found = prepared.read(path, _named_file(options.y_column))
    else:
        numbers = tables.embeddings(path, options.label_column or options.y_column)
        if numbers is None:
            return None
        found = numbers
    name = options.encoder and absolute_name(options.encoder)
    rows = LabelledRows(*found, name, None)
    _check_same_width(f"{option} {path}", rows.width, like)
    if labelled and rows.y is None:
        raise ValueError(
            f"{option}: expected embeddings with labels; {path} has none; write both with "
            "numpy.savez(path, x=, y=), add a column label to a CSV file, or put y.npy beside x.npy"
        )
    return rows


def _from_table(
    path: Path, options: ItemOptions, labelled: bool, like: Reference | None, option: str
) -> LabelledRows | None:
    """Embeddings in Arrow columns; None for columns of texts or images."""
    from dkvb.embedding import arrow

    if not arrow.holds_embeddings(path, options.x_column, options.split):
        return None
    y_column = options.y_column or options.label_column
    table = arrow.read_table(
        path, options.x_column, y_column, split=options.split, labelled=labelled, name=option
    )
    notes = arrow.notes_of(table)
    source = _source(notes.get("encoder"), notes.get("encoder_fingerprint"), path, options.encoder)
    check_same_encoder(f"{option} {path}", source, like)
    x, y = table.arrays()
    _check_same_width(f"{option} {path}", x.shape[1], like)
    return LabelledRows(x, y, *source, arrow.names_of(path, options.split))


def _source(told: str | None, fingerprint: str | None, path: Path, encoder: str | None) -> Source:
    """The encoder that a file names, which must be the one that is named here, if any is."""
    from dkvb.embedding import absolute_name

    named = None if encoder is None else absolute_name(encoder)
    if named and told and named != told:
        raise ValueError(
            f"--encoder: expected {told}, which made the embeddings in {path}; got {named}; leave "
            "--encoder out, or give a file of that encoder"
        )
    return Source(told or named, fingerprint)


def _named_file(path: str | None) -> Path | None:
    """The file of labels that --y-column names for embeddings in an npy file."""
    if path is None:
        return None
    if not Path(path).is_file():
        raise ValueError(f"--y-column: expected an npy file of labels; found no file at {path}")
    return Path(path)


def _from_npz(
    path: Path, encoder: str | None, labelled: bool, like: Reference | None, option: str
) -> LabelledRows:
    from dkvb.embedding.npz import (
        read_embeddings,
        read_encoder,
        read_labelled,
        read_names,
        width_of,
    )

    told, fingerprint = read_encoder(path, option)
    source = _source(told, fingerprint, path, encoder)
    check_same_encoder(f"{option} {path}", source, like)
    _check_same_width(f"{option} {path}", width_of(path, option), like)  # before it is inflated
    if labelled or _has_labels(path):
        x, y = read_labelled(path, option)
    else:
        x, y = read_embeddings(path, option), None
    return LabelledRows(x, y, *source, read_names(path, len(x)))


def _has_labels(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "y.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False  # whoever reads it says what is wrong
