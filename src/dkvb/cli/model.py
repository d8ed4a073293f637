"""`dkvb fit`, `learn`, `forget`, `merge`: change a model that lives in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._rows import AllowDownload, Data, EncoderName, check_same_encoder, read_rows
from dkvb.cli._shared import (
    Device,
    Quiet,
    available,
    clear_errors,
    printable,
    short_warnings,
    to_json,
)

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OperationId = Annotated[
    str | None,
    typer.Option(help="Name of this operation; repeated with the same one, it counts once."),
]
Wait = Annotated[
    float, typer.Option(min=0, help="Seconds to wait for another process that changes the model.")
]
Where = Annotated[Device, typer.Option("--device", help="Where to compute.")]


def fit(
    model: ModelPath,
    data: Data,
    keys: Annotated[
        str | None, typer.Option(help="Unlabelled rows to fit keys to; DATA unless given.")
    ] = None,
    classifier: Annotated[
        str, typer.Option(metavar="NAME[:key=value,...]", help="What shall learn.")
    ] = "bottleneck:rule=counts",
    encoder: EncoderName = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model in the folder.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 0,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a model and let it learn; MODEL is a new folder."""
    with clear_errors(), short_warnings():
        from dkvb.benchmark.grid import parse_spec
        from dkvb.deploy.store import check_target, create
        from dkvb.estimators.registry import make_classifier

        spec, place = parse_spec(classifier), available(device)
        check_target(model, overwrite)  # before any work
        how: dict[str, Any] = {"device": place, "quiet": quiet}
        rows = read_rows(data, encoder, labelled=True, **how)
        unlabelled = None
        if keys is not None:
            how |= {"like": rows, "option": "--keys"}
            unlabelled = read_rows(keys, encoder, labelled=False, **how).x
        made = make_classifier(
            spec.name, spec.settings, key_rows=unlabelled, seed=seed, device=place
        )
        made.fit(rows.x, rows.y)
        with create(
            model, made, encoder=rows.encoder, encoder_fingerprint=rows.encoder_fingerprint,
            rows=len(rows.y), overwrite=overwrite, wait=wait,
        ) as folder:  # fmt: skip
            _acknowledge("fit", len(rows.y), folder, as_json, quiet)


def learn(
    model: ModelPath,
    data: Data,
    encoder: EncoderName = None,
    allow_download: AllowDownload = False,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn more rows, of known classes or new ones; when it says so, they are on disk."""
    with clear_errors(), short_warnings(), _opened(model, device, wait) as folder:
        rows = _rows(folder, data, encoder, allow_download, quiet)
        count = folder.learn(rows.x, rows.y, operation_id=operation_id)
        _acknowledge("learn", count, folder, as_json, quiet)


def forget(
    model: ModelPath,
    label: Annotated[
        list[str] | None, typer.Option(help="The class to forget; may be given several times.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Or rows to forget, with the labels they were learned with.")
    ] = None,
    encoder: EncoderName = None,
    allow_download: AllowDownload = False,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Forget a class or rows, as if never learned; when it says so, no file here holds them."""
    with clear_errors(), short_warnings():
        if bool(label) == (data is not None):
            raise ValueError("forget: expected either --label or --data")
        with _opened(model, device, wait) as folder:
            if label:
                labels = label
                if not folder.is_done("forget", operation_id):
                    labels = _labels(folder.classifier, label)
                count = folder.forget(*labels, operation_id=operation_id)
            else:
                rows = _rows(folder, str(data), encoder, allow_download, quiet)
                count = folder.forget_samples(rows.x, rows.y, operation_id=operation_id)
            _acknowledge("forget", count, folder, as_json, quiet)


def merge(
    model: ModelPath,
    others: Annotated[
        list[Path], typer.Argument(metavar="OTHER...", help="Models with the same keys and rule.")
    ],
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add what other models have learned with the same keys; these stay as they are."""
    with clear_errors(), short_warnings():
        _check_distinct(model, others)
        found = [read_model(other, device) for other in others]
        with _opened(model, device, wait) as folder:
            known = next((m for m in (folder.model, *found) if m.encoder_fingerprint), None)
            for other, one in zip(others, found, strict=True):
                check_same_encoder(f"OTHER {other}", one, known)
            count = folder.merge(*(one.classifier for one in found), operation_id=operation_id)
            _acknowledge("merge", count, folder, as_json, quiet)


def read_model(path: Path, device: Device = Device.cpu) -> Any:
    """The model in a folder or in a single file, for whoever only looks."""
    from dkvb.deploy import store

    return store.read_model(path, available(device))


def _opened(model: Path, device: Device, wait: float) -> Any:
    from dkvb.deploy.store import open_folder

    return open_folder(model, available(device), wait)


def _check_distinct(model: Path, others: list[Path]) -> None:
    """Raise where a model would be added to itself, or twice."""
    met = [_own_path(model)]
    for other in others:
        if _own_path(other) in met:
            raise ValueError(
                f"OTHER: expected models other than MODEL, each once; got {other} twice, and "
                "adding it again would count every row twice"
            )
        met.append(_own_path(other))


def _own_path(path: Path) -> Path:
    """The folder of a model, also for the snapshot in it."""
    path = path.resolve()
    return path.parent if path.name == "model.safetensors" else path


def _rows(folder: Any, data: str, encoder: str | None, allow_download: bool, quiet: bool) -> Any:
    device = folder.classifier.get_params().get("device", "cpu")
    return read_rows(
        data, encoder, labelled=True, like=folder.model, device=device, quiet=quiet,
        allow_download=allow_download,
    )  # fmt: skip


def _labels(classifier: Any, texts: list[str]) -> list[Any]:
    """Labels as typed, as the kind that the model has."""
    known = {str(label): label for label in classifier.classes_.tolist()}
    for text in texts:
        if text not in known:
            shown = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
            raise ValueError(f"--label: expected one of {shown}; got {text!r}")
    return [known[text] for text in dict.fromkeys(texts)]


_DONE = {"fit": "learned", "learn": "learned", "forget": "forgot", "merge": "added"}


def _acknowledge(operation: str, count: int, folder: Any, as_json: bool, quiet: bool) -> None:
    """Say what is on disk now."""
    if quiet:
        return
    n_classes = len(folder.classifier.classes_)
    if as_json:
        facts = {"operation": operation, "rows": count, "classes": n_classes}
        typer.echo(to_json({**facts, "model": str(folder.path)}))
    else:
        rows = f"{count} row{'s' * (count != 1)}"
        classes = f"{n_classes} class{'es' * (n_classes != 1)}"
        typer.echo(printable(f"{_DONE[operation]} {rows}; {folder.path} knows {classes}"))
