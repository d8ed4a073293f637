"""`dkvb rename`, `merge-classes`, `relabel`, `undo`: change labels of a model in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._acknowledge import acknowledge
from dkvb.cli._items import DEFAULTS, ItemOptions, with_item_options
from dkvb.cli._rows import AllowDownload, Data
from dkvb.cli._shared import Device, Quiet, clear_errors, short_warnings
from dkvb.cli.model import (
    AsJson,
    ModelPath,
    OperationId,
    Wait,
    Where,
    known_labels,
    labelled_rows,
    opened,
)

Facts = dict[str, Any]


def rename(
    model: ModelPath,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The class.")],
    new_label: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Give a class another name, which no class has yet."""

    def change(folder: Any, repeated: bool) -> tuple[int, Facts]:
        old = label if repeated else known_labels(folder.classifier, [label], "LABEL")[0]
        new = _typed(folder.classifier, new_label, "NEW")
        return folder.rename(old, new, operation_id=operation_id), {"to": ([old], new)}

    _make("rename", change, operation_id, (model, device, wait), as_json, quiet)


def merge_classes(
    model: ModelPath,
    label: Annotated[list[str], typer.Option(help="A class; may be given several times.")],
    into: Annotated[str, typer.Option(help="The class that they become, known or new.")],
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make one class of several."""

    def change(folder: Any, repeated: bool) -> tuple[int, Facts]:
        labels = label if repeated else known_labels(folder.classifier, label, "--label")
        target = _typed(folder.classifier, into, "--into")
        count = folder.merge_classes(labels, target, operation_id=operation_id)
        return count, {"to": ([one for one in labels if one != target], target)}

    _make("merge_classes", change, operation_id, (model, device, wait), as_json, quiet)


@with_item_options
def relabel(
    model: ModelPath,
    data: Data,
    to: Annotated[str, typer.Option(help="The label that the rows get, known or new.")],
    encoder: ItemOptions = DEFAULTS,
    allow_download: AllowDownload = False,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Give learned rows another label; DATA holds them with the labels they were learned with."""

    def change(folder: Any, repeated: bool) -> tuple[int, Facts]:
        rows = labelled_rows(folder, data, encoder, allow_download, quiet, device, keep=False)
        new = _typed(folder.classifier, to, "--to")
        labels = [new] * len(rows.y)
        count = folder.relabel(rows.x, rows.y, labels, operation_id=operation_id)
        return count, {"to": ([], new)}

    _make("relabel", change, operation_id, (model, device, wait), as_json, quiet)


def undo(
    model: ModelPath,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Undo the last learn, relabel, rename or merge of classes; a forget is final."""

    def change(folder: Any, repeated: bool) -> tuple[int, Facts]:
        undoable = None if repeated else folder.model.undoable
        count = folder.undo(operation_id=operation_id)
        return count, {"undone": undoable and undoable.operation}

    _make("undo", change, operation_id, (model, device, wait), as_json, quiet)


def _make(
    operation: str,
    change: Callable[[Any, bool], tuple[int, Facts]],
    operation_id: str | None,
    where: tuple[Path, Device, float],
    as_json: bool,
    quiet: bool,
) -> None:
    """Open a model, make a change, and say what it did.

    `change` takes the folder and whether the operation was done before; it returns the number of
    rows and what else `acknowledge` takes. `where` is the model, the device and seconds to wait.
    """
    with clear_errors(), short_warnings(), opened(*where, quiet) as folder:
        repeated = folder.is_done(operation, operation_id)
        count, facts = change(folder, repeated)
        if not quiet:
            known = operation_id if repeated else None
            acknowledge(
                operation, count, folder.path, folder.classifier, as_json, repeated=known, **facts
            )


def _typed(classifier: Any, text: str, option: str) -> Any:
    """A label as typed, as the kind that the model's labels have."""
    kind = classifier.classes_.dtype.kind
    known = {str(label): label for label in classifier.classes_.tolist()}
    if kind == "U" or text in known:
        return known.get(text, text)
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"{option}: expected a whole number, as the model's labels are; got {text!r}"
        ) from None
