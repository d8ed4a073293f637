"""Rows for the commands that change or ask a model: npz files, or anything with an encoder."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, Protocol

import typer

from dkvb.cli._shared import note, show_progress

DATA_HELP = (
    "npz file with x (n, m) and labels y (n,); with an encoder also an image, a folder of images, "
    "or a CSV or JSONL file of texts or paths."
)
Data = Annotated[str, typer.Option(help=DATA_HELP)]
EncoderName = Annotated[
    str | None,
    typer.Option("--encoder", help="What embeds images or texts; a model remembers its own."),
]
AllowDownload = Annotated[
    bool,
    typer.Option(
        "--allow-download",
        help="Allow contacting a server for the encoder that the model names.",
    ),
]


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
    encoder: str | None,
    *,
    labelled: bool,
    device: str,
    like: Reference | None = None,
    option: str = "--data",
    quiet: bool = False,
    allow_download: bool = False,
) -> LabelledRows:
    """The rows that `option` names; labels are read where they are needed, or there.

    Rows of another encoder or width than those of `like` are refused; its encoder is taken unless
    another is named. Rows that name no encoder are taken, with a note unless `quiet`.
    An encoder that only `like` names is downloaded only if `allow_download`.
    """
    if data.endswith(".npz"):
        rows = _from_npz(Path(data), encoder, labelled, like, option)
        if not quiet:
            _note_unnamed(f"{option} {data}", rows, like)
        return rows
    model, source = _encoder_for(data, encoder, device, like, option, allow_download)
    items = _dataset(data, model.takes)
    if labelled and items.labels is None:
        raise ValueError(f"{option}: expected items with labels; {data} has none")
    return _embedded(model, source, items, quiet)


def read_items(
    items: list[str],
    encoder: str | None,
    *,
    device: str,
    like: Reference,
    quiet: bool = False,
    allow_download: bool = False,
) -> LabelledRows:
    """Return embeddings of single items: images, texts, or what standard input holds ("-")."""
    how: dict[str, Any] = {"device": device, "like": like, "allow_download": allow_download}
    if len(items) == 1 and (items[0].endswith(".npz") or Path(items[0]).is_dir()):
        return read_rows(items[0], encoder, labelled=False, option="ITEM", quiet=quiet, **how)
    model, source = _encoder_for(items[0], encoder, device, like, "ITEM", allow_download)
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
    return _embedded(model, source, dataset, quiet)


def _encoder_for(
    what: str,
    encoder: str | None,
    device: str,
    like: Reference | None,
    option: str,
    allow_download: bool,
) -> tuple[Any, Source]:
    """The encoder for items, which must be the one that made what was learned before."""
    name = encoder or (like.encoder if like else None)
    if name is None:
        raise ValueError(
            f"--encoder: expected the name of an encoder, since {what} is no npz file of "
            "embeddings; got none; name one, or embed first with dkvb embed"
        )
    from dkvb.embedding import load_encoder

    model = load_encoder(name, device=device, allow_download=allow_download or encoder is not None)
    source = source_of(name, model)
    check_same_encoder(f"{option} {what}", source, like)
    _check_same_width(f"{option} {what}", model.dimension, like)
    return model, source


def _dataset(data: str, kind: str) -> Any:
    from dkvb.embedding import load_dataset
    from dkvb.embedding.datasets.dataset import image_files
    from dkvb.embedding.datasets.folders import IMAGE_SUFFIXES

    path = Path(data).expanduser()
    if kind == "image" and path.is_file() and path.name.lower().endswith(IMAGE_SUFFIXES):
        return image_files(data, [path], None)
    return load_dataset(data, kind=kind)


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


def _embedded(model: Any, source: Source, items: Any, quiet: bool) -> LabelledRows:
    from dkvb.embedding import embed

    # Not in the cache for good, where no forgetting would find them; dkvb embed keeps them.
    with TemporaryDirectory(prefix="dkvb-") as cache:
        found = embed(model, items, cache, progress=show_progress(quiet))
        numbers = found.items.tolist()
        names = [items.item(i) if items.kind == "text" else items.item_name(i) for i in numbers]
        return LabelledRows(found.array(), found.labels, *source, names)


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


def _from_npz(
    path: Path, encoder: str | None, labelled: bool, like: Reference | None, option: str
) -> LabelledRows:
    from dkvb.embedding import absolute_name
    from dkvb.embedding.npz import read_embeddings, read_encoder, read_labelled, width_of

    told, fingerprint = read_encoder(path, option)
    named = None if encoder is None else absolute_name(encoder)
    if named and told and named != told:
        raise ValueError(
            f"--encoder: expected {told}, which made the embeddings in {path}; got {named}; leave "
            "--encoder out, or give a file of that encoder"
        )
    source = Source(told or named, fingerprint)
    check_same_encoder(f"{option} {path}", source, like)
    _check_same_width(f"{option} {path}", width_of(path, option), like)  # before it is inflated
    if labelled or _has_labels(path):
        rows = LabelledRows(*read_labelled(path, option), *source)
    else:
        rows = LabelledRows(read_embeddings(path, option), None, *source)
    return rows


def _has_labels(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "y.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False  # whoever reads it says what is wrong
