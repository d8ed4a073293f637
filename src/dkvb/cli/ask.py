"""`dkvb predict`, `inspect`, `history`, `export`: ask a model, which stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from dkvb.cli._items import DEFAULTS, ItemOptions, with_item_options
from dkvb.cli._rows import (
    DATA_HELP,
    AllowDownload,
    check_same_encoder,
    read_items,
    read_rows,
    source_of,
)
from dkvb.cli._shared import (
    Device,
    Quiet,
    available,
    clear_errors,
    kept_text,
    plural,
    printable,
    short_warnings,
    to_json,
)
from dkvb.cli._working import working
from dkvb.cli.model import AsJson, Where, read_model

AnyModel = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder of a model, or its safetensors file.")
]


class Dtype(StrEnum):
    """How numbers are written."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


@with_item_options
def predict(
    model: AnyModel,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ITEM]...",
            help="Images, or texts for an encoder of texts; - for standard input. Or give --data.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many classes to name per item.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write to, by suffix: .csv, .jsonl, .npz or .parquet."),
    ] = None,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print the label of each item, its probability, the runner-up and the item's novelty.

    A table on a terminal, CSV in a pipe. With labelled data also the accuracy.
    """
    with clear_errors(), short_warnings():
        import numpy as np

        from dkvb.cli import _answers

        if bool(items) == (data is not None):
            raise ValueError("predict: expected either ITEM or --data")
        if out is not None:
            _answers.check_out(out)
        found = read_model(model, device)
        how: dict[str, Any] = {"like": found, "device": available(device), "quiet": quiet}
        how["allow_download"] = allow_download
        if data is None:
            rows = read_items(items or [], encoder, **how)
        else:
            rows = read_rows(data, encoder, labelled=False, **how)
        labels: list[Any] = []

        def answers() -> Iterator[Any]:
            for part in _answers.predict(found.classifier, rows.x, rows.names, top):
                labels.append(part.found.labels)
                yield part

        with working(f"predicting {plural(len(rows.x), 'item')}", quiet):
            if out is not None:
                _answers.write(out, answers())
            else:
                shown = list(answers())
        if out is None:
            _answers.show(shown, as_json)
        if rows.y is not None and not quiet:
            classes = found.classifier.classes_
            _answers.note_accuracy(np.concatenate(labels), classes, rows.y)


@with_item_options
def inspect(
    model: AnyModel,
    data: Annotated[
        str | None, typer.Option(help="Rows to compare with those that keys were fitted to.")
    ] = None,
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    as_json: AsJson = False,
) -> None:
    """Classes, examples of each, what is kept of them, use of keys, novelty, size of the files."""
    with clear_errors(), short_warnings():
        from dkvb.store import read_summary, summarise
        from dkvb.store.summary import ModelSummary, quantiles

        summary = read_summary(model) if data is None else None
        if summary is None:  # which takes longer, and torch
            found = read_model(model)
            summary = ModelSummary(
                summarise(found.classifier),
                found.encoder,
                found.encoder_fingerprint,
                len(found.history),
                found.pending,
            )
        facts = _facts(model, summary)
        if data is not None and hasattr(found.classifier, "novelty"):
            rows = read_rows(
                data, encoder, labelled=False, like=found, device="cpu",
                allow_download=allow_download,
            )  # fmt: skip
            facts["novelty_of_data"] = quantiles(found.classifier.novelty(rows.x))
    if as_json:
        typer.echo(to_json(facts, indent=2))
    else:
        _show_facts(facts)


def history(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")],
    as_json: AsJson = False,
) -> None:
    """What was done to a model: operation, number of rows, time; never labels or rows."""
    with clear_errors(), short_warnings():
        from dkvb.store import read_history

        entries = read_history(model)
    if as_json:
        typer.echo(to_json([_entry_facts(entry) for entry in entries], indent=2))
    else:
        for entry in entries:
            rows = plural(entry.count, "row")
            typer.echo(printable(f"{entry.time}  {entry.operation:<15}{rows}"))


def _entry_facts(entry: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(entry).items() if name != "digest"}


@with_item_options
def export(
    model: AnyModel,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new .onnx or .safetensors file.")],
    dtype: Annotated[
        Dtype, typer.Option(help="float16 for onnx; float16 or int8 for values of a bottleneck.")
    ] = Dtype.float32,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Only what predicting needs: it cannot learn on.")
    ] = False,
    with_encoder: Annotated[
        bool, typer.Option("--with-encoder", help="onnx: from pictures, not from embeddings.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="Labelled rows to measure what rounding costs.")
    ] = None,
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a model to one file, for use elsewhere."""
    with clear_errors(), short_warnings():
        from dkvb._support import validation

        validation.new_file("OUT", out)
        if out.suffix == ".onnx":
            from dkvb._support.optional import require

            require("onnx", "export", "dkvb export")
        found = read_model(model)
        name = encoder.encoder or found.encoder
        if with_encoder and (name is None or out.suffix != ".onnx"):
            raise ValueError(
                "--with-encoder: expected a model that remembers its encoder, or --encoder, and "
                f"an .onnx file to write; got encoder {name} and {out.name}"
            )
        classifier = found.classifier.freeze() if freeze else found.classifier
        if out.suffix == ".onnx":
            trusted = allow_download or encoder.encoder is not None
            module = _encoder_of(found, name, encoder, trusted) if with_encoder else None
            with working(f"exporting to {out.name}", quiet):
                report = _export_onnx(classifier, out, dtype, module)
        elif out.suffix == ".safetensors":
            rows = None
            if data is not None and dtype is not Dtype.float32:
                how: dict[str, Any] = {"like": found, "device": "cpu", "quiet": quiet}
                how["allow_download"] = allow_download
                rows = read_rows(data, encoder, labelled=True, **how)
            report = _export_file(classifier, out, dtype, rows)
        else:
            raise ValueError(f"OUT: expected a name in .onnx or .safetensors; got {out}")
    if as_json:
        typer.echo(to_json(report))
    elif not quiet:
        for line in report.pop("notes", ()):
            typer.echo(printable(line))
        typer.echo(printable(f"wrote {report['path']}, {decimal(report['file_bytes'])}"))


# ------------------------------------------------------------------------------------------ facts
def _facts(path: Path, found: Any) -> dict[str, Any]:
    """Everything that is shown, in the order of JSON: of the classifier, and of its files."""
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
    about = dict(found.facts)
    return {
        "model": str(path),
        "classifier": about.pop("classifier"),
        "settings": about.pop("settings"),
        "encoder": found.encoder,
        "encoder_fingerprint": found.encoder_fingerprint,
        "width": about.pop("width"),
        "classes": about.pop("classes"),
        "files": {file.name: file.stat().st_size for file in files},
        "bytes": sum(file.stat().st_size for file in files),
        "operations": found.operations,
        "in_journal": found.pending,
        **about,
    }


def _show_facts(facts: dict[str, Any]) -> None:
    settings = " ".join(f"{key}={value}" for key, value in facts["settings"].items())
    lines = {
        "classifier": f"{facts['classifier']} {settings}".rstrip(),
        "encoder": facts["encoder"] or "not known",
        "width": facts["width"],
        "classes": facts["classes"],
        "operations": f"{facts['operations']}, "
        f"{facts['in_journal']} of them since the last snapshot",
    }
    if facts["encoder_fingerprint"]:
        lines["encoder"] += f", weights {facts['encoder_fingerprint'][:8]}"
    if "keys" in facts:
        k = facts["keys"]
        lines["keys"] = (
            f"{k['codebooks']} codebooks of {k['pairs']} pairs, fingerprint {k['fingerprint'][:8]}"
        )
        lines["pairs selected"] = f"{100 * k['selected']:.1f} %"
        lines["distance to keys"] = f"held-out rows: {_quantile_text(k['held_out_novelty'])}"
    if "keep" in facts:
        lines["keeps"] = kept_text(facts["keep"], facts["single_row_share"])
    if "novelty_of_data" in facts:
        lines["novelty of data"] = _quantile_text(facts["novelty_of_data"])
    for name, text in lines.items():
        typer.echo(f"{name:<20}{printable(text)}")
    _show_list("files", {name: decimal(size) for name, size in facts["files"].items()})
    counts = facts.get("examples", {})
    if "accuracy" not in facts:
        _show_list("rows per class", counts)
        return
    measured = facts["accuracy"]
    per_class = {label: f"{100 * value:.1f} %" for label, value in measured["per_class"].items()}
    mean = f"{100 * measured['mean']:.1f} %"
    if facts["suspects"]:
        shown = Counter(f"{one['label']}, like {one['predicted']}" for one in facts["suspects"])
        _show_list(
            "rows whose label the others contradict, the clearest first",
            {pair: plural(n, "row") for pair, n in shown.items()},
        )
    _show_list(
        f"{measured['kind']} accuracy {mean}; rows and accuracy per class",
        {label: f"{n:<10} {per_class.get(label, '-')}" for label, n in counts.items()},
    )


def _show_list(heading: str, items: dict[str, Any]) -> None:
    if items:
        typer.echo(heading)
    for name, text in items.items():
        typer.echo(f"  {printable(name):<38} {text}")


def _quantile_text(quantiles: dict[str, float]) -> str:
    return ", ".join(f"{100 * float(q):.0f} % < {value:g}" for q, value in quantiles.items())


# ---------------------------------------------------------------------------------------- exports
def _encoder_of(found: Any, name: str, items: ItemOptions, allow_download: bool) -> Any:
    """The encoder of that name, if it is the one that made what the model learned."""
    from dkvb.embedding import load_encoder

    encoder = load_encoder(name, weights=items.weights, allow_download=allow_download)
    check_same_encoder("--with-encoder", source_of(name, encoder), found)
    return encoder


def _export_onnx(classifier: Any, out: Path, dtype: Dtype, encoder: Any) -> dict[str, Any]:
    from dkvb import export_onnx

    report = export_onnx(classifier, out, encoder=encoder, dtype=str(dtype))
    return {
        "path": str(out),
        "opset": report.opset,
        "inputs": list(report.inputs),
        "outputs": list(report.outputs),
        "file_bytes": report.file_bytes,
        "notes": [f"takes {', '.join(report.inputs)}; opset {report.opset}"],
    }


def _export_file(classifier: Any, out: Path, dtype: Dtype, rows: Any) -> dict[str, Any]:
    rounded = dtype is not Dtype.float32
    classifier.save(out, **({"dtype": str(dtype)} if rounded else {}))
    report: dict[str, Any] = {"path": str(out), "file_bytes": out.stat().st_size}
    if rounded:
        report["notes"] = _cost(classifier, out, rows, report)
    return report


def _cost(classifier: Any, out: Path, rows: Any, report: dict[str, Any]) -> list[str]:
    """What rounding costs: in accuracy where there are rows to measure it on."""
    from dkvb.estimators.registry import load_classifier

    if rows is None:
        return ["what rounding costs is not known: give --data with labelled rows to measure it"]
    before, after = (clf.predict(rows.x) for clf in (classifier, load_classifier(out)))
    exact, rounded = (float((labels == rows.y).mean()) for labels in (before, after))
    changed = float((before != after).mean())
    report |= {"accuracy": exact, "accuracy_rounded": rounded, "changed": changed}
    return [
        f"accuracy {100 * exact:.2f} % before rounding, {100 * rounded:.2f} % after; "
        f"{100 * changed:.2f} % of {len(rows.y)} answers changed"
    ]
