"""Rows for the commands that change or ask a model: npz files, or anything with an encoder."""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

Data = Annotated[
    str,
    typer.Option(
        help="npz file with x (n, m) and labels y (n,); with an encoder also a folder of images, "
        "or a CSV or JSONL file of texts or paths."
    ),
]
EncoderName = Annotated[
    str | None,
    typer.Option("--encoder", help="What embeds images or texts; a model remembers its own."),
]


class LabelledRows(NamedTuple):
    """Embeddings (n, m), and labels (n,) where there are any."""

    x: Any
    y: Any


def read_rows(
    data: str, encoder: str | None, *, labelled: bool, device: str, progress: bool = False
) -> LabelledRows:
    """The rows that `--data` names; labels are read where they are needed, or there."""
    if data.endswith(".npz"):
        return _from_npz(Path(data), labelled)
    if encoder is None:
        raise ValueError(
            f"--encoder: expected the name of an encoder, since {data} is no npz file of "
            "embeddings; got none; name one, or embed first with dkvb embed"
        )
    from dkvb.embedding import embed, load_dataset, load_encoder

    model = load_encoder(encoder, device=device)
    items = load_dataset(data, kind=model.takes)
    if labelled and items.labels is None:
        raise ValueError(f"--data: expected items with labels; {data} has none")
    # Not in the cache for good, where no forgetting would find them; dkvb embed keeps them.
    with TemporaryDirectory(prefix="dkvb-") as cache:
        found = embed(model, items, cache, progress=progress)
        return LabelledRows(found.array(), found.labels)


def _from_npz(path: Path, labelled: bool) -> LabelledRows:
    from dkvb.embeddings_file import read_embeddings, read_labelled

    if labelled or _has_labels(path):
        return LabelledRows(*read_labelled(path, "--data"))
    return LabelledRows(read_embeddings(path, "--data"), None)


def _has_labels(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "y.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False  # whoever reads it says what is wrong
