"""Options that say how items become embeddings, the same ones in every command that reads data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer


class OnError(StrEnum):
    """What to do about items that cannot be read."""

    fail = "fail"
    skip = "skip"


Weights = Annotated[Path | None, typer.Option(help="The encoder's weights, in a local file.")]
Column = Annotated[str | None, typer.Option(help="The table's column of texts or paths.")]
LabelColumn = Annotated[str | None, typer.Option(help="The table's column of labels.")]
XColumn = Annotated[
    str | None, typer.Option(help="The column of embeddings; guessed where there is one.")
]
YColumn = Annotated[
    str | None,
    typer.Option(help="The column of labels beside embeddings; guessed where there is one."),
]
HandleError = Annotated[
    OnError, typer.Option(help="Unreadable images, named at the end: an error, or left out.")
]
CacheFolder = Annotated[
    Path | None, typer.Option("--cache", help="The cache's folder; ~/.cache/dkvb unless given.")
]


@dataclass(frozen=True)
class ItemOptions:
    """The encoder of images or texts, and how data is read; each field is an option."""

    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder of images or texts; default: the one stored in the model."),
    ] = None
    weights: Weights = None
    split: Annotated[str | None, typer.Option(help="Part of the data, such as train or test.")] = (
        None
    )
    column: Column = None
    label_column: LabelColumn = None
    x_column: XColumn = None
    y_column: YColumn = None
    on_error: HandleError = OnError.fail
    cache: CacheFolder = None


DEFAULTS = ItemOptions()


def with_item_options(
    command: Callable[..., None], encoder_help: str | None = None
) -> Callable[..., None]:
    """The same command with one option per field in place of its parameter of `ItemOptions`.

    `encoder_help` is for commands without a model that an encoder could be stored in.
    """
    hints = get_type_hints(command, include_extras=True)
    options = get_type_hints(ItemOptions, include_extras=True)
    if encoder_help is not None:
        options["encoder"] = Annotated[str | None, typer.Option(help=encoder_help)]
    parameters: list[Parameter] = []
    target = ""
    for parameter in signature(command).parameters.values():
        if hints[parameter.name] is not ItemOptions:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        target = parameter.name
        parameters += [
            Parameter(
                field.name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=field.default,
                annotation=options[field.name],
            )
            for field in fields(ItemOptions)
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = ItemOptions(**{field.name: given.pop(field.name) for field in fields(ItemOptions)})
        command(**given, **{target: chosen})

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
