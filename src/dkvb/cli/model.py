"""`dkvb fit`, `learn`, `forget`, `merge`: change a model that lives in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._rows import AllowDownload, Data, EncoderName, check_same_encoder, read_rows
from dkvb.cli._shared import Device, Quiet, available, clear_errors, short_warnings

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
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
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Allow another model's place, or a folder of other files."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a model and let it learn; MODEL is a new folder."""
    with clear_errors(), short_warnings():
        from dkvb.benchmark.grid import parse_spec
        from dkvb.deploy.store import create
        from dkvb.estimators.registry import make_classifier

        spec, place = parse_spec(classifier), available(device)
        _check_free(model, replace)
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
            rows=len(rows.y), replace=replace,
        ) as folder:  # fmt: skip
            _acknowledge("fit", len(rows.y), folder, as_json, quiet)


def learn(
    model: ModelPath,
    data: Data,
    encoder: EncoderName = None,
    allow_download: AllowDownload = False,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn more rows, of known classes or new ones; when it says so, they are on disk."""
    with clear_errors(), short_warnings(), _opened(model, device) as folder:
        rows = _rows(folder, data, encoder, allow_download, quiet)
        count = folder.learn(rows.x, rows.y)
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
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Forget a class or rows, as if never learned; when it says so, no file here holds them."""
    with clear_errors(), short_warnings():
        if bool(label) == (data is not None):
            raise ValueError("forget: expected either --label or --data")
        with _opened(model, device) as folder:
            if label:
                count = sum(folder.forget(one) for one in _labels(folder.classifier, label))
            else:
                rows = _rows(folder, str(data), encoder, allow_download, quiet)
                count = folder.forget_samples(rows.x, rows.y)
            _acknowledge("forget", count, folder, as_json, quiet)


def merge(
    model: ModelPath,
    others: Annotated[
        list[Path], typer.Argument(metavar="OTHER...", help="Models with the same keys and rule.")
    ],
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add what other models have learned with the same keys; these stay as they are."""
    with clear_errors(), short_warnings():
        if model.resolve() in [other.resolve() for other in others]:
            raise ValueError(
                f"OTHER: expected other models than {model}; got it too, and adding it to itself "
                "would count every row twice"
            )
        found = [read_model(other, device) for other in others]
        with _opened(model, device) as folder:
            known = next((m for m in (folder.model, *found) if m.encoder_fingerprint), None)
            for other, one in zip(others, found, strict=True):
                check_same_encoder(f"OTHER {other}", one, known)
            count = folder.merge(*(one.classifier for one in found))
            _acknowledge("merge", count, folder, as_json, quiet)


def read_model(path: Path, device: Device = Device.cpu) -> Any:
    """The model in a folder or in a single file, for whoever only looks."""
    from dkvb.deploy.store import Model, read_folder
    from dkvb.estimators.registry import load_classifier

    place = available(device)
    if path.is_file():
        return Model(load_classifier(path, place), None, (), 0, "", None, 0.0)
    return read_folder(path, place)


def _opened(model: Path, device: Device) -> Any:
    from dkvb.deploy.store import open_folder

    return open_folder(model, available(device))


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


def _check_free(model: Path, replace: bool) -> None:
    from dkvb.deploy.store.folder import SNAPSHOT, strangers

    if (model / SNAPSHOT).exists() and not replace:
        raise ValueError(
            f"{model}: expected a new folder; there is a model; choose another name, let it "
            "learn more with dkvb learn, or put a new one in its place with --replace"
        )
    if not replace and (found := strangers(model)):
        shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise ValueError(
            f"{model}: expected a new or an empty folder; found {shown}, which no model has; "
            "choose another name, or put the model beside that with --replace"
        )


_DONE = {"fit": "learned", "learn": "learned", "forget": "forgot", "merge": "added"}


def _acknowledge(operation: str, count: int, folder: Any, as_json: bool, quiet: bool) -> None:
    """Say what is on disk now."""
    if quiet:
        return
    n_classes = len(folder.classifier.classes_)
    if as_json:
        facts = {"operation": operation, "rows": count, "classes": n_classes}
        typer.echo(json.dumps({**facts, "model": str(folder.path)}))
    else:
        rows = f"{count} row{'s' * (count != 1)}"
        typer.echo(f"{_DONE[operation]} {rows}; {folder.path} knows {n_classes} classes")
