"""Forget classes, rows or a source: final, and only when it is confirmed."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from dkvb.serve import shapes
from dkvb.serve.inputs import rectangular
from dkvb.serve.problems import Problem
from dkvb.serve.routes.changes import ANSWER, check_known, ids_of_source, known_ids, made
from dkvb.serve.routes.common import IdempotencyKey, ServiceDep
from dkvb.serve.service import Service
from dkvb.serve.writer import Change

router = APIRouter(tags=["learn"])
_KINDS = ("classes", "ids", "source", "embeddings")


@router.post("/v1/forget", responses=ANSWER)
async def forget(
    body: shapes.Forget, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Forget classes, rows or a source, as if never learned; final."""
    folder = service.writer.folder
    given = [name for name in _KINDS if getattr(body, name) is not None]
    if len(given) != 1:
        raise ValueError(
            "body: expected exactly one of classes, ids, source and embeddings; got "
            f"{' and '.join(given) or 'none'}"
        )
    operation = "forget" if given == ["classes"] else "forget_samples"
    sent = None if body.embeddings is None else _rows(service, body)

    def call(operation_id: str) -> int:
        rows = sent or {}
        if not folder.is_done(operation, operation_id):  # else what it was about is gone
            rows = rows or _known_rows(service, body)
            if not body.confirm:
                raise _unconfirmed(service, body, rows)
        if body.classes is not None:
            return folder.forget(*body.classes, operation_id=operation_id)
        return folder.forget_samples(**rows, operation_id=operation_id)

    def after() -> None:
        service.remembered.clear()
        service.keep_pictures()

    content = body.model_dump_json(exclude={"confirm"})
    return await made(service, Change(operation, call, None, content, after), idempotency_key)


def _rows(service: Service, body: shapes.Forget) -> dict[str, Any]:
    """Rows that were sent with their labels."""
    X = service.checked(rectangular(body.embeddings or []))
    if body.labels is None or len(body.labels) != len(X):
        raise ValueError(
            f"labels: expected {len(X)}, those that the rows were learned with; got "
            f"{len(body.labels or ())}"
        )
    return {"X": X, "y": list(body.labels)}


def _known_rows(service: Service, body: shapes.Forget) -> dict[str, Any]:
    """Rows by their ids; none for classes, which are known."""
    if body.classes is not None:
        check_known(service, body.classes, "classes")
        return {}
    if body.ids is not None:
        return {"ids": known_ids(service, body.ids)}
    return {"ids": ids_of_source(service, body.source or "")}


def _unconfirmed(service: Service, body: shapes.Forget, rows: dict[str, Any]) -> Problem:
    counts = getattr(service.model.classifier, "class_count_", {})
    if body.classes is not None:
        n = sum(counts.get(label, 0) for label in body.classes)
    else:
        n = len(next(iter(rows.values())))
    return Problem(
        422,
        f"confirm: expected true, since forgetting {n} rows is final and cannot be undone; got "
        "false; nothing was changed",
        rows=n,
    )
