"""Everything that changes the model; answered once it is on disk."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from dkvb.deploy.serve import shapes
from dkvb.deploy.serve.inputs import (
    Inputs,
    LabelledRows,
    RelabelledRows,
    body_schema,
    read_inputs,
    typed_labels,
)
from dkvb.deploy.serve.problems import Problem
from dkvb.deploy.serve.routes.common import IdempotencyKey, ServiceDep, as_json
from dkvb.deploy.serve.service import Service
from dkvb.deploy.serve.writer import Acknowledgement, Change
from dkvb.deploy.store import Learnable

router = APIRouter(tags=["learn"])
_ANSWER = {200: {"model": shapes.Acknowledged}, **shapes.problems(404, 409, 507)}
_FIELDS = ("label", "id", "source", "text", "prediction_id")


@router.post("/v1/learn", responses=_ANSWER, openapi_extra=body_schema(LabelledRows, _FIELDS))
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
    writer = service.writer
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
        if service.model.keeps_ids:
            ids = rows or [_made_id(operation_id, i, inputs.source) for i in range(len(X))]
        elif rows is not None or inputs.source is not None:
            _refuse_ids(service)
        known.update(labels=labels, ids=ids)
        return Learnable(X, labels, ids, operation_id)

    def after() -> None:
        if service.thumbnails is not None and known["ids"] is not None:
            service.thumbnails.add(known["ids"], pictures)

    content = _digest(X, given, rows, inputs.source)
    change = Change("learn", learn=batch, content=content, after=after)
    done = await writer.make(change, key)
    if predicted is not None and not done.repeated:
        service.prequential.add(predicted, known["labels"])
        service.remembered.drop(inputs.prediction_ids or [])
    return acknowledged(service, done, ids=known["ids"])


@router.post("/v1/forget", responses=_ANSWER)
async def forget(
    body: shapes.Forget, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Forget classes, rows or a source, as if never learned; final."""
    writer = service.writer
    given = [
        name
        for name in ("classes", "ids", "source", "embeddings")
        if getattr(body, name) is not None
    ]
    if len(given) != 1:
        raise ValueError(
            "body: expected exactly one of classes, ids, source and embeddings; got "
            f"{' and '.join(given) or 'none'}"
        )
    content = body.model_dump_json(exclude={"confirm"})
    if body.embeddings is not None:
        X = service.checked(_array(body.embeddings))
        if body.labels is None or len(body.labels) != len(X):
            raise ValueError(f"labels: expected {len(X)}, those that the rows were learned with; "
                             f"got {len(body.labels or ())}")  # fmt: skip
        operation, change = "forget_samples", {"X": X, "y": list(body.labels)}
    elif body.classes is not None:
        operation, change = "forget", {}
    else:
        operation, change = "forget_samples", {}

    def call(operation_id: str) -> int:
        folder = writer.folder
        if folder.is_done(operation, operation_id):
            pass  # what it was about is gone
        elif body.classes is not None:
            check_known(service, body.classes, "classes")
        elif body.embeddings is None:
            change["ids"] = _known_ids(service, body)
        if not body.confirm and not folder.is_done(operation, operation_id):
            raise _unconfirmed(service, body, change)
        if operation == "forget":
            return folder.forget(*(body.classes or ()), operation_id=operation_id)
        return folder.forget_samples(**change, operation_id=operation_id)

    def after() -> None:
        service.remembered.clear()
        service.keep_pictures()

    made = Change(operation, call, content=content, after=after)
    done = await writer.make(made, idempotency_key)
    return as_json(acknowledged(service, done))


@router.post(
    "/v1/relabel",
    responses=_ANSWER,
    openapi_extra=body_schema(RelabelledRows, (*_FIELDS, "old_label")),
)
async def relabel(
    request: Request, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Give learned rows other labels: rows by their ids, or sent again with their old labels."""
    inputs = await read_inputs(request, service.limits, RelabelledRows, rows_needed=False)
    if inputs.labels is None:
        raise ValueError("labels: expected the new label of each row; got none")
    writer, given = service.writer, inputs.labels
    change: dict[str, Any] = {}
    if len(inputs):
        if inputs.old_labels is None:
            raise ValueError("old_labels: expected the labels that the rows were learned with; "
                             "got none; or give ids alone")  # fmt: skip
        change["X"], _ = await service.embeddings(inputs)
    elif not inputs.ids:
        raise ValueError("body: expected ids, or rows with old_labels; got none")

    def call(operation_id: str) -> int:
        classes = service.model.classifier.classes_
        new = typed_labels(given, classes, inputs.textual)
        if len(inputs):
            change["y_old"] = typed_labels(inputs.old_labels or [], classes, inputs.textual)
        else:
            change["ids"] = _check_ids(service, inputs.ids or [])
        return writer.folder.relabel(**change, y_new=new, operation_id=operation_id)

    content = _digest(change.get("X"), given, inputs.ids, str(inputs.old_labels))
    done = await writer.make(Change("relabel", call, content=content), idempotency_key)
    return as_json(acknowledged(service, done))


@router.post("/v1/rename", responses=_ANSWER)
async def rename(
    body: shapes.Rename, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Give a class another name, which no class has yet."""
    writer = service.writer

    def call(operation_id: str) -> int:
        if not writer.folder.is_done("rename", operation_id):
            check_known(service, [body.label], "label")
            if _is_known(service, body.new_label):
                raise Problem(
                    409,
                    f"new_label: expected a name that no class has; got {body.new_label!r}, which "
                    "one has; use /v1/merge to make one class of both",
                )
        return writer.folder.rename(body.label, body.new_label, operation_id=operation_id)

    content = body.model_dump_json()
    done = await writer.make(Change("rename", call, content=content), idempotency_key)
    return as_json(acknowledged(service, done))


@router.post("/v1/merge", responses=_ANSWER)
async def merge(
    body: shapes.Merge, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make one class of several."""
    writer = service.writer

    def call(operation_id: str) -> int:
        if not writer.folder.is_done("merge_classes", operation_id):
            check_known(service, body.labels, "labels")
        return writer.folder.merge_classes(body.labels, body.into, operation_id=operation_id)

    content = body.model_dump_json()
    done = await writer.make(Change("merge_classes", call, content=content), idempotency_key)
    return as_json(acknowledged(service, done))


@router.post("/v1/undo", responses=_ANSWER)
async def undo(
    service: ServiceDep,
    body: shapes.Undo | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Undo the last learn, relabel, rename or merge; a forget is final."""
    writer, expected = service.writer, None if body is None else body.sequence

    def call(operation_id: str) -> int:
        folder = writer.folder
        if not folder.is_done("undo", operation_id):
            last = folder.model.undoable
            if last is None:
                raise Problem(
                    409,
                    "undo: expected a learn, relabel, rename or merge as the last operation; there "
                    "is none: a forget is final, and so is what was before it",
                )
            if expected not in (None, last.sequence):
                raise Problem(
                    409,
                    f"sequence: expected {last.sequence}, that of the last operation; got "
                    f"{expected}: something else was done since; look at /v1/history",
                )
        return folder.undo(operation_id=operation_id)

    def after() -> None:
        service.keep_pictures()

    made = Change("undo", call, content=str(expected), after=after)
    done = await writer.make(made, idempotency_key)
    return as_json(acknowledged(service, done))


# ----------------------------------------------------------------------------------------- shared
def acknowledged(
    service: Service, done: Acknowledgement, ids: list[Any] | None = None
) -> dict[str, Any]:
    """Return what to answer of an operation that is on disk."""
    if not done.repeated:
        service.metrics.rows.labels(done.operation).inc(done.count)
    return {**vars(done), "classes": len(service.model.classifier.classes_), "ids": ids}


def check_known(service: Service, labels: list[Any], name: str) -> None:
    """Raise for a class that the model does not know."""
    unknown = [label for label in labels if not _is_known(service, label)]
    if not labels or unknown:
        known = ", ".join(map(str, service.model.classifier.classes_.tolist()[:10]))
        shown = repr(unknown[0])[:100] if unknown else "none"
        raise Problem(
            404 if unknown else 422,
            f"{name}: expected classes of this model ({known or 'it has none yet'}); got {shown}; "
            "GET /v1/classes lists them",
        )


def _is_known(service: Service, label: Any) -> bool:
    known = service.model.classifier.classes_.tolist()
    return any(type(one) is type(label) and one == label for one in known)


def _known_ids(service: Service, body: shapes.Forget) -> list[Any]:
    if body.ids is not None:
        return _check_ids(service, body.ids)
    if not service.model.keeps_ids:
        _refuse_ids(service)
    prefix = f"{body.source}/"
    own = [one for one in service.model.ids() if isinstance(one, str) and one.startswith(prefix)]
    if not own:
        raise Problem(404, f"source: expected one of learned rows; got {str(body.source)[:60]!r}")
    return own


def _check_ids(service: Service, ids: list[Any]) -> list[Any]:
    if not service.model.keeps_ids:
        _refuse_ids(service)
    missing = set(ids) - set(service.model.ids())
    if not ids or missing:
        shown = ", ".join(repr(one)[:60] for one in sorted(missing, key=str)[:3]) or "none"
        raise Problem(404 if ids else 422, f"ids: expected those of learned rows; got {shown}")
    return ids


def _refuse_ids(service: Service) -> None:
    name = type(service.model.classifier).__name__
    raise Problem(
        409,
        f"ids, source: expected a classifier that keeps ids of rows; {name} keeps none; send the "
        "embeddings with their labels instead, or fit a model with --classifier kernel",
    )


def _unconfirmed(service: Service, body: shapes.Forget, change: dict[str, Any]) -> Problem:
    counts = getattr(service.model.classifier, "class_count_", {})
    if body.classes is not None:
        n = sum(counts.get(label, 0) for label in body.classes)
    else:
        n = len(change["ids"]) if "ids" in change else len(change["X"])
    return Problem(
        422,
        f"confirm: expected true, since forgetting {n} rows is final and cannot be undone; got "
        "false; nothing was changed",
        rows=n,
    )


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


def _array(rows: list[list[float]]) -> Any:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"embeddings: expected rows of one length; got {sorted(lengths)[:5]}")
    return np.array(rows, dtype=np.float64).reshape(len(rows), lengths.pop() if lengths else 0)
