"""`dkvb embed`: embeddings of images and texts, kept in a cache."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from dkvb.cli._items import CacheFolder, Column, HandleError, LabelColumn, OnError, Weights
from dkvb.cli._rows import name_skipped, names_of
from dkvb.cli._shared import Quiet, clear_errors, short_warnings, show_progress

if TYPE_CHECKING:
    from dkvb.embedding import Embeddings

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_NAME_CHARACTERS = 200  # of an item's name or text in a file: an array is as wide as its longest


class Where(StrEnum):
    """Where to compute; auto: on a GPU if there is one."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Views(StrEnum):
    """An image as it is, or the mean of its embedding and its mirror image's."""

    plain = "plain"
    flip = "flip"


class Pooling(StrEnum):
    """The mean over places, or all of the spatial map."""

    mean = "mean"
    map = "map"


class Dtype(StrEnum):
    """How rows are kept."""

    float32 = "float32"
    float16 = "float16"


class Precision(StrEnum):
    """How the encoder computes; auto: float16 on a GPU."""

    auto = "auto"
    float32 = "float32"
    float16 = "float16"


def embed(
    data: Annotated[
        str,
        typer.Option(
            help="cifar10, cifar100, stl10, imagenet (each may have :FOLDER), hf:NAME, a folder of "
            "images or of CIFAR's binary files, or a CSV, TSV or JSONL file."
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            help="Which encoder; timm:NAME, sentence-transformers:NAME and onnx:FILE name any. "
            "Settings may follow the name: NAME:layers=last+stage3,views=flip."
        ),
    ] = "efficientnet_lite0",
    split: Annotated[
        list[str] | None,
        typer.Option(help="Part of the data, may be given twice; train unless given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="npz or Parquet file for x and y; or a folder, for DATA-ENCODER-SPLIT.npz of "
            "train and test."
        ),
    ] = None,
    weights: Weights = None,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER[,LAYER...]",
            help="last, stage1 to stage4, or several: last,stage3 are conditioned apart and "
            "joined.",
        ),
    ] = None,
    pooling: Annotated[
        Pooling | None, typer.Option(help="Mean unless given, or the whole spatial map.")
    ] = None,
    views: Annotated[
        Views | None,
        typer.Option(help="flip: the mean of an image's embedding and its mirror image's."),
    ] = None,
    no_crop: Annotated[
        bool, typer.Option("--no-crop", help="Resize images without cropping them.")
    ] = False,
    dtype: Annotated[Dtype, typer.Option(help="Type of the rows.")] = Dtype.float32,
    limit: Annotated[
        int | None, typer.Option(help="Number of items at most, at even distances in the data.")
    ] = None,
    noise: Annotated[
        float, typer.Option(help="Standard deviation of noise on pixels, which are in [0, 1].")
    ] = 0.0,
    noise_seed: Annotated[int, typer.Option(help="Seed of that noise.")] = 0,
    column: Column = None,
    label_column: LabelColumn = None,
    on_error: HandleError = OnError.fail,
    device: Annotated[Where, typer.Option(help="Where to compute.")] = Where.auto,
    precision: Annotated[Precision, typer.Option(help="How to compute.")] = Precision.auto,
    batch_size: Annotated[
        int | None, typer.Option(help="Items per batch; chosen automatically unless given.")
    ] = None,
    shard_rows: Annotated[int, typer.Option(help="Rows per shard of the cache.")] = 1024,
    workers: Annotated[
        int | None, typer.Option(help="Threads that decode; one per core unless given.")
    ] = None,
    cache: CacheFolder = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Embed images or texts with a frozen encoder; what is in the cache is not embedded again.

    Killed and repeated, the command goes on after the last full shard.
    """
    with clear_errors(), short_warnings():
        from dkvb._support.optional import require
        from dkvb.embedding import (
            Cache,
            PixelNoise,
            UnreadableItemsError,
            absolute_name,
            load_encoder,
        )
        from dkvb.embedding import embed as embed_items
        from dkvb.embedding.arrow import PARQUET
        from dkvb.embedding.datasets import load_dataset, splits_of
        from dkvb.embedding.encoders.settings import Settings, as_layers

        to_file = out is not None and out.suffix.lower() in (".npz", *PARQUET)
        if out is not None and out.suffix.lower() in PARQUET:
            require("pyarrow.parquet", "arrow", "--out with a name in .parquet")
        splits: list[str | None] = [*(split or ())]
        if not splits:
            known = splits_of(data)
            splits = [*(known if out and not to_file else known[:1])] or [None]
        if to_file and len(splits) > 1:
            raise ValueError("--out: expected a folder for several splits; got one file")
        place = _place(device)
        crop = "none" if no_crop else None
        settings = Settings(as_layers(layers), pooling, views, crop).checked()
        full_name = absolute_name(encoder, settings)
        model = load_encoder(full_name, weights=weights, device=place, precision=precision)
        kept = Cache(cache)
        reports = []
        for part in splits:
            items = load_dataset(
                data, part, kind=model.takes, column=column, label_column=label_column,
                download_to=kept.folder / "datasets",
            )  # fmt: skip
            if limit is not None:
                items = items.subsample(limit)
            try:
                found = embed_items(
                    model, items, kept, dtype=dtype, crop=not no_crop, on_error=on_error,
                    noise=PixelNoise(noise, noise_seed) if noise else None,
                    batch_rows=batch_size, shard_rows=shard_rows, workers=workers,
                    progress=show_progress(quiet),
                )  # fmt: skip
            except UnreadableItemsError as error:
                name_skipped(error.skipped)
                raise
            target = out if out is None or to_file else out / _file_name(data, full_name, part)
            if target is not None:
                _write(found, names_of(items, found.items), target, full_name)
            report = _report(found, target)
            reports.append(report)
            if not quiet and not as_json:
                _show(report)
                name_skipped(found.skipped)
    if as_json and not quiet:
        typer.echo(json.dumps(reports, indent=2, ensure_ascii=False))


def _place(device: Where) -> str:
    from dkvb._support.optional import require_torch

    here = require_torch("embed").cuda.is_available()
    if device is Where.cuda and not here:
        raise ValueError("--device: expected one that is here; got cuda, and torch sees none")
    return "cuda" if here and device is not Where.cpu else "cpu"


def _file_name(data: str, encoder: str, split: str | None) -> str:
    """DATA-ENCODER-SPLIT.npz, as the paper's experiments look for it.

    >>> _file_name("cifar10:/data", "onnx:models/mine.onnx", "test")
    'cifar10-onnx-mine-test.npz'
    >>> _file_name("cifar10", "resnet50:layers=last+stage3,views=flip", None)
    'cifar10-resnet50-layers-last-stage3-views-flip-train.npz'
    """
    from dkvb.embedding.datasets import NAMES
    from dkvb.embedding.datasets.folders import binary_cifar_name
    from dkvb.embedding.encoders.settings import split_name

    name = data.partition(":")[0]
    if name not in NAMES:
        name = binary_cifar_name(Path(data).expanduser()) or Path(data).stem or "data"
    bare, settings = split_name(encoder)
    family, colon, model = bare.partition(":")
    short = f"{family}-{Path(model).name.removesuffix('.onnx')}" if colon else bare
    parts = (name, f"{short}{settings.suffix()}", split or "train")
    return "-".join(re.sub(r"[^\w.-]+", "-", part).strip("-") for part in parts) + ".npz"


def _write(found: Embeddings, names: list[str], path: Path, encoder: str) -> None:
    from dkvb.embedding import encoder_fingerprint
    from dkvb.embedding.arrow import PARQUET, write_table
    from dkvb.embedding.npz import write_embeddings

    path.parent.mkdir(parents=True, exist_ok=True)
    labels = {} if found.labels is None else {"y": found.labels}
    short = [name[:_NAME_CHARACTERS] for name in names]
    notes = {
        "about": json.dumps(found.entry.about["identity"], sort_keys=True),
        "encoder": encoder,  # not the cache's: a file may have moved since
        "encoder_fingerprint": encoder_fingerprint(found.entry.identity["encoder"]),
    }
    if path.suffix.lower() in PARQUET:
        columns = {**labels, "item": found.items, "name": short}
        write_table(path, found.parts(), columns, notes)
        return
    write_embeddings(
        path, found.parts(), len(found.items), **labels, items=found.items, names=short, **notes
    )


def _report(found: Embeddings, out: Path | None) -> dict[str, Any]:
    entry = found.entry
    return {
        "entry": entry.address,
        "folder": str(entry.folder),
        "encoder": entry.about["encoder_name"],
        "data": entry.about["data_name"],
        "rows": len(found.items),
        "dimension": entry.about["dimension"],
        "dtype": entry.identity["dtype"],
        "bytes": entry.size(),
        "embedded": found.embedded,
        "seconds": round(found.seconds, 3),
        "items_per_second": round(found.embedded / found.seconds, 1) if found.embedded else None,
        "skipped": [item._asdict() for item in found.skipped],
        "labelled": found.labels is not None,
        "out": None if out is None else str(out),
    }


def _show(report: dict[str, Any]) -> None:
    rate = report["items_per_second"]
    typer.echo(
        f"{report['data']}: {report['rows']} rows of {report['dimension']} {report['dtype']}, "
        f"{report['embedded']} embedded now in {report['seconds']:.1f} s"
        f"{f' ({rate:.0f} per second)' if rate else ''}"
    )
    typer.echo(f"cache: {report['entry'][:12]}, {decimal(report['bytes'])}, {report['folder']}")
    if report["out"]:
        typer.echo(f"file: {report['out']}")
