"""`dkvb rename`, `merge-classes`, `relabel`, `undo`: change labels of a model in a folder."""

from __future__ import annotations

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
    with clear_errors(), short_warnings(), opened(model, device, wait, quiet) as folder:
        old: Any = label
        repeated = operation_id if folder.is_done("rename", operation_id) else None
        if not repeated:
            (old,) = known_labels(folder.classifier, [label], "LABEL")
        new = _typed(folder.classifier, new_label, "NEW")
        count = folder.rename(old, new, operation_id=operation_id)
        if not quiet:
            acknowledge(
                "rename", count, folder.path, folder.classifier, as_json, repeated=repeated,
                to=([old], new),
            )  # fmt: skip


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
    with clear_errors(), short_warnings(), opened(model, device, wait, quiet) as folder:
        labels: list[Any] = label
        repeated = operation_id if folder.is_done("merge_classes", operation_id) else None
        if not repeated:
            labels = known_labels(folder.classifier, label, "--label")
        target = _typed(folder.classifier, into, "--into")
        count = folder.merge_classes(labels, target, operation_id=operation_id)
        if not quiet:
            acknowledge(
                "merge_classes", count, folder.path, folder.classifier, as_json,
                repeated=repeated, to=([one for one in labels if one != target], target),
            )  # fmt: skip


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
    with clear_errors(), short_warnings(), opened(model, device, wait, quiet) as folder:
        rows = labelled_rows(folder, data, encoder, allow_download, quiet, keep=False)
        new = _typed(folder.classifier, to, "--to")
        repeated = operation_id if folder.is_done("relabel", operation_id) else None
        count = folder.relabel(rows.x, rows.y, [new] * len(rows.y), operation_id=operation_id)
        if not quiet:
            acknowledge(
                "relabel", count, folder.path, folder.classifier, as_json, repeated=repeated,
                to=([], new),
            )  # fmt: skip


def undo(
    model: ModelPath,
    operation_id: OperationId = None,
    wait: Wait = 0.0,
    device: Where = Device.cpu,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Undo the last learn, relabel, rename or merge of classes; a forget is final."""
    with clear_errors(), short_warnings(), opened(model, device, wait, quiet) as folder:
        repeated = operation_id if folder.is_done("undo", operation_id) else None
        undoable = None if repeated else folder.model.undoable
        count = folder.undo(operation_id=operation_id)
        if not quiet:
            acknowledge(
                "undo", count, folder.path, folder.classifier, as_json, repeated=repeated,
                undone=undoable and undoable.operation,
            )  # fmt: skip


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
