"""Learn rows, and give learned rows other labels; answered once it is on disk."""

from __future__ import annotations

import hashlib
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dkvb.serve.inputs import (
    Inputs,
    LabelledRows,
    RelabelledRows,
    body_schema,
    read_inputs,
    typed_labels,
)
from dkvb.serve.routes.changes import ANSWER, acknowledged, check_keeps_ids, known_ids, made
from dkvb.serve.routes.common import IdempotencyKey, ServiceDep, as_json
from dkvb.serve.service import Service
from dkvb.serve.writer import Change
from dkvb.store import Learnable

router = APIRouter(tags=["learn"])
_FIELDS = ("label", "id", "source", "text", "prediction_id")


@router.post("/v1/learn", responses=ANSWER, openapi_extra=body_schema(LabelledRows, _FIELDS))
async def learn(
    request: Request, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Learn rows with their labels, of known classes or new ones."""
    inputs = await read_inputs(request, service.limits, LabelledRows)
    X, pictures = await service.embeddings(inputs)
    return as_json(await learn_rows(service, inputs, X, pictures, idempotency_key))


async def learn_rows(
    service: Service, inputs: Inputs, X: Any, pictures: list[bytes | None], key: str | None
) -> dict[str, Any]:
    """Learn embeddings X (n, m) with the labels of `inputs`; return what to answer."""
    if inputs.labels is None:
        raise ValueError(
            "labels: expected a label for all rows, or labels, one per row; got none; give label "
            "or labels"
        )
    given = inputs.labels
    rows = None if inputs.ids is None else [_sourced(inputs.source, own) for own in inputs.ids]
    predicted = None
    if inputs.prediction_ids is not None:
        predicted = [one.label for one in service.remembered.get(inputs.prediction_ids)]
    known: dict[str, Any] = {}

    def batch(operation_id: str) -> Learnable:
        labels = typed_labels(given, service.model.classifier.classes_, inputs.textual)
        ids = None
        if rows is not None or inputs.source is not None:
            check_keeps_ids(service)
        if service.model.keeps_ids:
            ids = rows or [_made_id(operation_id, i, inputs.source) for i in range(len(X))]
        known.update(labels=labels, ids=ids)
        return Learnable(X, labels, ids, operation_id)

    def after() -> None:
        if service.thumbnails is not None and known["ids"] is not None:
            service.thumbnails.add(known["ids"], pictures)

    content = _digest(X, given, rows, inputs.source)
    change = Change("learn", learn=batch, content=content, after=after)
    done = await service.writer.make(change, key)
    if predicted is not None and not done.repeated:
        service.prequential.add(predicted, known["labels"])
        service.remembered.drop(inputs.prediction_ids or [])
    return acknowledged(service, done, ids=known["ids"])


@router.post(
    "/v1/relabel",
    responses=ANSWER,
    openapi_extra=body_schema(RelabelledRows, (*_FIELDS, "old_label")),
)
async def relabel(
    request: Request, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Give learned rows other labels: rows by their ids, or sent again with their old labels."""
    inputs = await read_inputs(request, service.limits, RelabelledRows, rows_needed=False)
    if inputs.labels is None:
        raise ValueError("labels: expected the new label of each row; got none")
    folder, given, X = service.writer.folder, inputs.labels, None
    if len(inputs):
        if inputs.old_labels is None:
            raise ValueError("old_labels: expected the labels that the rows were learned with; "
                             "got none; or give ids alone")  # fmt: skip
        X, _ = await service.embeddings(inputs)
    elif not inputs.ids:
        raise ValueError("body: expected ids, or rows with old_labels; got none")

    def call(operation_id: str) -> int:
        classes = service.model.classifier.classes_
        new = typed_labels(given, classes, inputs.textual)
        if X is None:
            ids = known_ids(service, inputs.ids or [])
            return folder.relabel(ids=ids, y_new=new, operation_id=operation_id)
        old = typed_labels(inputs.old_labels or [], classes, inputs.textual)
        return folder.relabel(X, old, new, operation_id=operation_id)

    content = _digest(X, given, inputs.ids, str(inputs.old_labels))
    return await made(service, Change("relabel", call, content=content), idempotency_key)


def _sourced(source: str | None, own: Any) -> Any:
    return own if source is None else f"{source}/{own}"


def _made_id(operation_id: str, i: int, source: str | None) -> str:
    """The same id for the same row of a repeated operation."""
    own = f"{hashlib.sha256(operation_id.encode()).hexdigest()[:16]}-{i}"
    return str(_sourced(source, own))


def _digest(X: Any, *others: Any) -> str:
    digest = hashlib.sha256(repr(others).encode(errors="surrogatepass"))
    if X is not None:
        digest.update(repr(X.shape).encode() + X.tobytes())
    return digest.hexdigest()
