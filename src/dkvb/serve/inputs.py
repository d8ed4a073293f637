"""What a request brings: images, texts, embeddings or ids of predictions, with labels or without.

Images come as multipart, embeddings as npy, Arrow IPC or JSON, texts as JSON or multipart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from starlette.formparsers import MultiPartException, MultiPartParser

from dkvb._support.label_text import check_texts
from dkvb.serve.arrays import ARROW, NPY, read_arrow, read_npy
from dkvb.serve.problems import Problem
from dkvb.serve.settings import Limits

Label: TypeAlias = StrictBool | StrictInt | StrictStr
RowId: TypeAlias = StrictStr | StrictInt

JSON, MULTIPART = "application/json", "multipart/form-data"
MEDIA_TYPES = (JSON, MULTIPART, NPY[0], *ARROW)
_LONGEST_SOURCE = 200

Query = TypeVar("Query", bound=BaseModel)


class Rows(BaseModel):
    """Rows without labels: give exactly one of embeddings, texts and prediction_ids."""

    model_config = ConfigDict(extra="forbid")
    embeddings: list[list[float]] | None = Field(None, description="One row of numbers per item.")
    texts: list[str] | None = Field(None, description="For a model whose encoder takes texts.")
    prediction_ids: list[str] | None = Field(
        None, description="Ids that predict returned with remember=true."
    )


class LabelledRows(Rows):
    """Rows with labels: one label for all rows, or labels, one per row."""

    label: Label | None = Field(None, description="The label of all rows.")
    labels: list[Label] | None = Field(None, description="One label per row.")
    ids: list[RowId] | None = Field(None, description="Names of the rows; made unless given.")
    source: str | None = Field(
        None, description="Where rows come from; all rows of a source can be forgotten at once."
    )


class RelabelledRows(LabelledRows):
    """Rows that were learned with old labels; or their ids alone."""

    old_label: Label | None = Field(None, description="The label that all rows were learned with.")
    old_labels: list[Label] | None = Field(None, description="One old label per row.")


@dataclass(frozen=True)
class Inputs:
    """Rows as they came, counted and checked as far as that is possible without a model."""

    embeddings: NDArray[Any] | None = None  # (n, m)
    images: list[bytes] | None = None
    texts: list[str] | None = None
    prediction_ids: list[str] | None = None
    labels: list[Any] | None = None
    old_labels: list[Any] | None = None
    ids: list[Any] | None = None
    source: str | None = None
    textual: bool = False  # whether labels came as texts that may stand for numbers

    @property
    def rows(self) -> Any:
        """The rows, of whichever kind; None where there are none."""
        kinds = (self.embeddings, self.images, self.texts, self.prediction_ids)
        return next((one for one in kinds if one is not None), None)

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)


async def read_inputs(
    request: Request, limits: Limits, model: type[Rows] = Rows, rows_needed: bool = True
) -> Inputs:
    """Return what a request brings; an error that says what was expected."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        inputs = _from_json(await request.body(), model)
    elif kind == MULTIPART:
        inputs = await _from_form(request, limits)
    elif kind in NPY:
        inputs = Inputs(_array(read_npy(await _body(request))), **_named_in_query(request))
    elif kind in ARROW:
        found = read_arrow(await _body(request))
        named = _named_in_query(request)
        named |= {"labels": found.labels, "textual": False} if found.labels is not None else {}
        named |= {"ids": found.ids} if found.ids is not None else {}
        inputs = Inputs(_array(found.embeddings), **named)
    else:
        raise Problem(
            415,
            f"Content-Type: expected one of {', '.join(MEDIA_TYPES)}; got {kind[:100] or 'none'}",
            {"Accept-Post": ", ".join(MEDIA_TYPES)},
        )
    return _checked(inputs, limits, rows_needed)


def _checked(inputs: Inputs, limits: Limits, rows_needed: bool) -> Inputs:
    n = len(inputs)
    if rows_needed and not n:
        raise ValueError("body: expected at least one row; got none; send images, texts, "
                         "embeddings or prediction_ids")  # fmt: skip
    n = n or len(inputs.ids or ())
    if n > limits.rows:
        raise Problem(
            413, f"body: expected at most {limits.rows:,} rows; got {n:,}; send them in parts"
        )
    if inputs.source is not None:
        if not 0 < len(inputs.source) <= _LONGEST_SOURCE or "/" in inputs.source:
            raise ValueError(
                f"source: expected 1 to {_LONGEST_SOURCE} characters without a slash; got "
                f"{inputs.source[:60]!r}"
            )
        check_texts([inputs.source], "source")
    check_texts([one for one in inputs.ids or () if isinstance(one, str)], "ids")
    if inputs.labels is None and inputs.old_labels is None:
        return inputs
    return replace(
        inputs,
        labels=_one_per_row(inputs.labels, n, "labels"),
        old_labels=_one_per_row(inputs.old_labels, n, "old_labels"),
    )


def _one_per_row(labels: list[Any] | None, n: int, name: str) -> list[Any] | None:
    if labels is None or len(labels) == n:
        return labels
    if len(labels) == 1:
        return labels * n
    raise ValueError(f"{name}: expected {n}, one per row, or one for all; got {len(labels)}")


def _from_json(body: bytes, model: type[Rows]) -> Inputs:
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(_shown(error)) from None
    kinds = {
        name: value
        for name in ("embeddings", "texts", "prediction_ids")
        if (value := getattr(found, name)) is not None
    }
    if len(kinds) > 1:
        raise ValueError(f"body: expected one kind of rows; got {' and '.join(kinds)}")
    if "embeddings" in kinds:
        kinds["embeddings"] = _array(rectangular(kinds["embeddings"]))
    inputs = Inputs(**kinds)
    if isinstance(found, LabelledRows):
        inputs = replace(
            inputs,
            labels=_either(found.label, found.labels, "label"),
            ids=found.ids,
            source=found.source,
        )
    if isinstance(found, RelabelledRows):
        old = _either(found.old_label, found.old_labels, "old_label")
        inputs = replace(inputs, old_labels=old)
    return inputs


async def _from_form(request: Request, limits: Limits) -> Inputs:
    parser = _InMemory(
        request.headers,
        request.stream(),
        max_files=limits.rows,
        max_fields=4 * limits.rows,
        max_part_size=limits.body_bytes,
    )
    try:
        return await _parsed(parser)
    except (MultiPartException, KeyError, UnicodeDecodeError) as error:
        message = getattr(error, "message", None) or "it has no boundary, or is cut"
        raise ValueError(
            f"body: expected multipart/form-data; got another body: {message}"
        ) from None
    finally:
        for file in parser._files_to_close_on_error:  # also those of a body that was cut
            file.close()


async def _parsed(parser: MultiPartParser) -> Inputs:
    images, fields = [], []
    for name, value in (await parser.parse()).multi_items():
        if isinstance(value, str):
            fields.append((name, value))
        else:
            images.append(await value.read())
    known = ("label", "old_label", "id", "source", "text", "prediction_id")
    alien = next((name for name, _ in fields if name not in known), None)
    if alien is not None:
        raise ValueError(
            f"body, field {alien[:60]!r}: expected files of images, or one of {', '.join(known)}"
        )

    def values(name: str) -> list[str]:
        return [value for own, value in fields if own == name]

    rows: dict[str, Any] = {
        "images": images or None,
        "texts": values("text") or None,
        "prediction_ids": values("prediction_id") or None,
    }
    if sum(value is not None for value in rows.values()) > 1:
        raise ValueError("body: expected one kind of rows; got several of images, texts and "
                         "ids of predictions")  # fmt: skip
    named = _named(values("label"), values("id"), next(iter(values("source")), None))
    return Inputs(**rows, **named, old_labels=values("old_label") or None)


class _InMemory(MultiPartParser):
    """Photos are never written to disk on their way through."""

    spool_max_size = 1 << 40


async def _body(request: Request) -> bytes:
    body = await request.body()
    if not body:
        raise ValueError("body: expected an array; got an empty body")
    return body


def _named_in_query(request: Request) -> dict[str, Any]:
    """What the query says of the rows of a body that holds nothing but numbers."""
    if not request.scope["query_string"]:
        return {}
    query = request.query_params
    named = _named(query.getlist("label"), query.getlist("id"), query.get("source"))
    return named | {"old_labels": query.getlist("old_label") or None}


def _named(labels: list[str], ids: list[str], source: str | None) -> dict[str, Any]:
    return {"labels": labels or None, "ids": ids or None, "source": source, "textual": True}


def _either(one: Any, several: list[Any] | None, name: str) -> list[Any] | None:
    if one is not None and several is not None:
        raise ValueError(f"{name}: expected {name} or {name}s; got both")
    return [one] if one is not None else several


def _array(array: NDArray[Any]) -> NDArray[Any]:
    """Embeddings (n, m); one row (m,) is taken as (1, m)."""
    return array[None] if array.ndim == 1 else array


def rectangular(rows: list[list[float]]) -> NDArray[np.float64]:
    """Return rows of numbers (n, m); an error where they differ in length."""
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"embeddings: expected rows of one length; got {sorted(lengths)[:5]}")
    return np.array(rows, dtype=np.float64).reshape(len(rows), lengths.pop() if lengths else 0)


def typed_labels(labels: Iterable[Any], classes: NDArray[Any], textual: bool) -> list[Any]:
    """Return labels; those that came as texts as the kind that the model's classes have."""
    given = list(labels)
    kind = classes.dtype.kind if len(classes) else "U"
    if not textual or kind == "U":
        return given
    try:
        if kind == "b":
            return [{"true": True, "false": False}[one.lower()] for one in given]
        return [int(one) for one in given]
    except (KeyError, ValueError):
        expected = "true or false" if kind == "b" else "whole numbers"
        raise ValueError(
            f"labels: expected {expected}, as the labels before; got {given[0][:60]!r}; a model "
            "takes labels of one kind"
        ) from None


def _shown(error: ValidationError) -> str:
    found = []
    for one in error.errors(include_url=False, include_input=False)[:5]:
        place = ".".join(map(str, one["loc"])) or "body"
        found.append(f"{place}: {one['msg']}")
    return "; ".join(found)


def body_schema(model: type[Rows], fields: Iterable[str]) -> dict[str, Any]:
    """Return what OpenAPI says of a body that `read_inputs` takes."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    texts = {"type": "array", "items": {"type": "string"}}
    form = {
        "type": "object",
        "properties": {
            "image": {"type": "array", "items": {"type": "string", "format": "binary"}},
            **dict.fromkeys(fields, texts),
        },
    }
    content = {
        JSON: {"schema": model.model_json_schema()},
        MULTIPART: {"schema": form},
        **dict.fromkeys((NPY[0], *ARROW), binary),
    }
    return {"requestBody": {"required": True, "content": content}}


def read_query(request: Request, model: type[Query]) -> Query:
    """Return the parameters of a query; an error that says what was expected."""
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise ValueError(_shown(error)) from None


def query_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI says of parameters that `read_query` takes."""
    found = model.model_json_schema()["properties"]
    return {"parameters": [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in found.items()
    ]}  # fmt: skip
