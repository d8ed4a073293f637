"""`dkvb fit`, `learn`, `forget`, `merge`: change a model that lives in a folder."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._acknowledge import acknowledge
from dkvb.cli._change import can_forget, change_of
from dkvb.cli._items import DEFAULTS, ItemOptions, with_item_options
from dkvb.cli._rows import CLASSIFIERS, AllowDownload, Data, read_rows
from dkvb.cli._shards import ShardReader, closing_on_error, learn_shard
from dkvb.cli._shared import (
    Device,
    Quiet,
    available,
    clear_errors,
    kept_text,
    note,
    plural,
    printable,
    short_warnings,
    to_json,
    warn,
)
from dkvb.cli._working import working

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


class Keep(StrEnum):
    """What is kept of learned rows."""

    examples = "examples"
    sums = "sums"


@partial(with_item_options, encoder_help="Encoder: required for images and texts.")
def fit(
    model: ModelPath,
    data: Data,
    keys: Annotated[
        str | None,
        typer.Option(
            help="Keys to use: a file of keys or a model; or unlabelled rows to fit keys to, DATA "
            "unless given."
        ),
    ] = None,
    classifier: Annotated[
        str,
        typer.Option(metavar="NAME[:key=value,...]", help=f"Classifier to train: {CLASSIFIERS}."),
    ] = "kernel",
    keep: Annotated[
        Keep | None,
        typer.Option(
            help="What the kernel classifier keeps of learned rows: every embedding, or a count "
            "and a sum per key and class."
        ),
    ] = None,
    encoder: ItemOptions = DEFAULTS,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model in the folder.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a new model; MODEL is a new folder."""
    with clear_errors(), short_warnings():
        from dkvb.estimators.registry import make_classifier
        from dkvb.evaluation.grid import parse_spec
        from dkvb.store import check_target, create

        spec, place = parse_spec(classifier), available(device)
        settings = _with_keep(spec, keep)
        check_target(model, overwrite)  # before any work
        how: dict[str, Any] = {"device": place, "quiet": quiet}
        rows = read_rows(data, encoder, labelled=True, **how)
        unlabelled = None
        if keys is not None and _names_keys(keys):
            settings["keys"] = _keys_for(keys, rows, place)
        elif keys is not None:
            how |= {"like": rows, "option": "--keys"}
            unlabelled = read_rows(keys, encoder, labelled=False, **how).x
        with working(f"learning {plural(len(rows.y), 'row')}", quiet):
            made = make_classifier(
                spec.name, settings, key_rows=unlabelled, seed=seed, device=place
            )
            made.fit(rows.x, rows.y)
        with create(
            model, made, encoder=rows.encoder, encoder_fingerprint=rows.encoder_fingerprint,
            rows=len(rows.y), overwrite=overwrite, wait=wait, with_summary=True,
        ) as folder:  # fmt: skip
            if not quiet:
                acknowledge("fit", len(rows.y), folder.path, made, as_json)
                if hasattr(made, "single_row_share_"):
                    kept = kept_text(made.keep, made.single_row_share_)
                    note(
                        f"the model keeps {kept}; --classifier bottleneck, slda or ranpac keeps "
                        "no row"
                    )


@with_item_options
def learn(
    model: ModelPath,
    data: Data,
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what learning would do to the old classes; change nothing."
        ),
    ] = False,
    test: Annotated[
        str | None,
        typer.Option(help="Labelled rows, not learned, to measure the old classes on."),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Write a snapshot at once; no journal keeps what was learned."
        ),
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Model whose keys and settings a new MODEL begins with, to learn a shard that is "
            "merged later; MODEL's name is the operation id unless given."
        ),
    ] = None,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn more rows, of known classes or new ones; returns after they are on disk."""
    if like is not None:
        with clear_errors(), short_warnings():
            if dry_run or test is not None:
                raise ValueError("--like: expected neither --dry-run nor --test beside it")
            name = operation_id or model.resolve().name
            shard, count, done = learn_shard(
                model, data, like, encoder, name, allow_download=allow_download, wait=wait,
                device=device, quiet=quiet,
            )  # fmt: skip
            with shard:
                if not quiet:
                    acknowledge(
                        "learn", count, shard.path, shard.classifier, as_json,
                        repeated=name if done else None,
                    )  # fmt: skip
        return
    with clear_errors(), short_warnings(), opened(model, device, wait, quiet) as folder:
        rows = labelled_rows(folder, data, encoder, allow_download, quiet, device)
        held_out = None
        if test is not None:
            found = labelled_rows(
                folder, test, encoder, allow_download, quiet, device, option="--test"
            )
            held_out = (found.x, found.y)
        before = folder.classifier
        repeated = operation_id if folder.is_done("learn", operation_id) else None
        same = None if quiet or repeated else folder.learned_before(rows.x, rows.y)
        with working(f"learning {plural(len(rows.y), 'row')}", quiet):
            if dry_run and not repeated:
                count, after = len(rows.y), folder.preview(rows.x, rows.y)
            else:
                count = folder.learn(rows.x, rows.y, operation_id=operation_id)
                if compact and not dry_run:
                    folder.compact()
                after = folder.classifier
        if quiet:
            return
        if repeated:
            acknowledge("learn", count, folder.path, after, as_json, repeated=repeated)
            return
        remedy = "" if dry_run else _remedy(folder)
        if same is not None:
            twice = "would count" if dry_run else "count"
            warn(
                f"--data {data}: the same rows were learned at {same.time}; they {twice} twice"
                f"{' now' * (not dry_run)}{remedy}"
            )
        if as_json:
            change = _measured(before, after, held_out)
            facts: dict[str, Any] = {"dry_run": True} if dry_run else {}
            facts |= {"old_classes": change.facts()} if change else {}
            acknowledge("learn", count, folder.path, after, True, **facts)
            return
        acknowledge("learn", count, folder.path, after, False, dry_run=dry_run)
        if change := _measured(before, after, held_out):
            typer.echo(printable(change.line()))
            if lost := change.warning():
                warn(lost + remedy)


@with_item_options
def forget(
    model: ModelPath,
    label: Annotated[
        list[str] | None, typer.Option(help="The class to forget; may be given several times.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Or rows to forget, with the labels they were learned with.")
    ] = None,
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Forget classes or rows, as if never learned.

    When it says so, no file of the model holds anything of them.
    """
    with clear_errors(), short_warnings():
        if bool(label) == (data is not None):
            raise ValueError("forget: expected either --label or --data")
        with opened(model, device, wait, quiet) as folder:
            if label:
                labels = label
                repeated = folder.is_done("forget", operation_id)
                if not repeated:
                    labels = known_labels(folder.classifier, label, "--label")
                with working(f"forgetting {plural(len(labels), 'class', 'classes')}", quiet):
                    count = folder.forget(*labels, operation_id=operation_id)
            else:
                repeated = folder.is_done("forget_samples", operation_id)
                rows = labelled_rows(
                    folder, str(data), encoder, allow_download, quiet, device, keep=False
                )
                with working(f"forgetting {plural(len(rows.y), 'row')}", quiet):
                    count = folder.forget_samples(rows.x, rows.y, operation_id=operation_id)
            if not quiet:
                acknowledge(
                    "forget", count, folder.path, folder.classifier, as_json,
                    repeated=operation_id if repeated else None,
                )  # fmt: skip


def tune(
    model: ModelPath,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Solve for every example, where these are more than 12,000: in minutes, with "
            "4 bytes of memory for every pair of examples.",
        ),
    ] = False,
    wait: Wait = 0.0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Choose all settings again, for what was learned until now.

    While a model learns row by row, they stay what they were when it was small or was fitted.
    """
    with clear_errors(), short_warnings(), opened(model, Device.cpu, wait, quiet) as folder:
        if exact:
            count = folder.tune(exact=True, progress=not quiet)
        else:
            with working("choosing settings", quiet):
                count = folder.tune()
        classifier = folder.classifier
        accuracy, kind = classifier.loo_score_, classifier.loo_kind_
        if as_json:
            facts = {"rows": count, "accuracy": accuracy, "kind": kind, **classifier.setting_}
            typer.echo(to_json({"operation": "tune", "model": str(folder.path), **facts}))
        elif not quiet:
            rows = f"{plural(count, 'row')}; accuracy on them {accuracy:.1%} ({kind})"
            typer.echo(printable(f"tuned {folder.path} for its {rows}"))


def merge(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Folder of the model; a new one holds the others' union."
        ),
    ],
    others: Annotated[
        list[Path], typer.Argument(metavar="OTHER...", help="Models with the same keys.")
    ],
    skip_merged: Annotated[
        bool,
        typer.Option(
            "--skip-merged", help="Leave out shards that MODEL has already, and do not refuse them."
        ),
    ] = False,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add what other models have learned with the same keys; these stay as they are.

    A model remembers all shards that were merged into it, and one that is there already is
    refused by its name.
    """
    with clear_errors(), short_warnings():
        from dkvb.store.layout import holds_model

        _check_distinct(model, others)
        reader = ShardReader(others, device, skip_merged)
        with working(f"merging {plural(len(others), 'model')}", quiet):
            repeated = False
            if not holds_model(model):
                folder = reader.create(model, operation_id, wait)
                count = folder.model.history[0].count
            else:
                folder = opened(model, device, wait, quiet)
                with closing_on_error(folder):
                    repeated = folder.is_done("merge", operation_id)
                    count = reader.merge_into(folder, operation_id)
        with folder:
            if not quiet:
                for path in reader.skipped:
                    note(f"{path} was merged before, and is left out")
                acknowledge(
                    "merge", count, folder.path, folder.classifier, as_json,
                    repeated=operation_id if repeated else None,
                )  # fmt: skip


def _with_keep(spec: Any, keep: Keep | None) -> dict[str, Any]:
    """The settings of a classifier, with what `--keep` says."""
    settings = dict(spec.settings)
    if keep is None:
        return settings
    if spec.name != "kernel":
        raise ValueError(
            f"--keep: expected --classifier kernel beside it; got {spec.name}, of which what it "
            "keeps cannot be chosen; leave --keep out"
        )
    if settings.setdefault("keep", keep.value) != keep.value:
        raise ValueError(
            f"--keep: expected what --classifier says, {settings['keep']}; got {keep.value}; give "
            "one of them"
        )
    return settings


def _measured(before: Any, after: Any, held_out: Any) -> Any:
    with working("measuring the old classes", quiet=False):
        return change_of(before, after, held_out)


def read_model(path: Path, device: Device = Device.cpu) -> Any:
    """The model in a folder or in a single file, for whoever only looks."""
    from dkvb import store

    return store.read_model(path, available(device))


def opened(model: Path, device: Device, wait: float, quiet: bool) -> Any:
    """Return the folder of a model, to be changed."""
    from dkvb.store import open_folder

    # Where accuracy is told, it is kept for `dkvb inspect`, too.
    return open_folder(model, available(device), wait, with_summary=not quiet)


def _check_distinct(model: Path, others: list[Path]) -> None:
    """Raise where a model would be added to itself, or twice."""
    from dkvb.store.shards import path_of

    met = [path_of(model)]
    for other in others:
        if path_of(other) in met:
            raise ValueError(
                f"OTHER: expected models other than MODEL, each once; got {other} twice, and "
                "adding it again would count every row twice"
            )
        met.append(path_of(other))


def labelled_rows(
    folder: Any,
    data: str,
    items: ItemOptions,
    allow_download: bool,
    quiet: bool,
    device: Device,
    keep: bool = True,
    option: str = "--data",
) -> Any:
    """Return labelled rows that fit the model of a folder."""
    return read_rows(
        data, items, labelled=True, like=folder.model, device=available(device), quiet=quiet,
        allow_download=allow_download, keep=keep, option=option,
    )  # fmt: skip


def known_labels(classifier: Any, texts: list[str], option: str) -> list[Any]:
    """Return the model's classes of these names; an error for one that it does not know."""
    known = {str(label): label for label in classifier.classes_.tolist()}
    for text in texts:
        if text not in known:
            shown = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
            raise ValueError(f"{option}: expected one of {shown}; got {text!r}")
    return [known[text] for text in dict.fromkeys(texts)]


def _names_keys(keys: str) -> bool:
    """Whether a path is that of a model or of a file of keys, and not of rows."""
    path = Path(keys)
    if path.is_dir():
        return (path / "model.safetensors").exists()
    return path.is_file() and path.suffix in ("", ".safetensors")


def _keys_for(path: str, rows: Any, device: str) -> Any:
    from dkvb.store import load_keys

    keys = load_keys(path, device)
    if keys.width != rows.width:
        raise ValueError(
            f"--keys {path}: expected keys for embeddings of width {rows.width}, as --data has; "
            f"got keys for width {keys.width}; fit keys to embeddings of the same encoder"
        )
    return keys


def _remedy(folder: Any) -> str:
    """How to take back what was learned just now, where that can be done."""
    if folder.model.undoable is not None:
        return f"; dkvb undo {folder.path} undoes it"
    if can_forget(folder.classifier):
        return "; dkvb forget with the same --data undoes it"
    return ""
