"""Rename and merge classes, and undo the last change."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from dkvb.serve import shapes
from dkvb.serve.problems import Problem
from dkvb.serve.routes.changes import ANSWER, check_known, is_known, made
from dkvb.serve.routes.common import IdempotencyKey, ServiceDep
from dkvb.serve.writer import Change

router = APIRouter(tags=["learn"])


@router.post("/v1/rename", responses=ANSWER)
async def rename(
    body: shapes.Rename, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Give a class another name, which no class has yet."""
    folder = service.writer.folder

    def call(operation_id: str) -> int:
        if not folder.is_done("rename", operation_id):
            check_known(service, [body.label], "label")
            if is_known(service, body.new_label):
                raise Problem(
                    409,
                    f"new_label: expected a name that no class has; got {body.new_label!r}, which "
                    "one has; use /v1/merge to make one class of both",
                )
        return folder.rename(body.label, body.new_label, operation_id=operation_id)

    change = Change("rename", call, content=body.model_dump_json())
    return await made(service, change, idempotency_key)


@router.post("/v1/merge", responses=ANSWER)
async def merge(
    body: shapes.Merge, service: ServiceDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make one class of several."""
    folder = service.writer.folder

    def call(operation_id: str) -> int:
        if not folder.is_done("merge_classes", operation_id):
            check_known(service, body.labels, "labels")
        return folder.merge_classes(body.labels, body.into, operation_id=operation_id)

    change = Change("merge_classes", call, content=body.model_dump_json())
    return await made(service, change, idempotency_key)


@router.post("/v1/undo", responses=ANSWER)
async def undo(
    service: ServiceDep,
    body: shapes.Undo | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Undo the last learn, relabel, rename or merge; a forget is final."""
    folder, expected = service.writer.folder, None if body is None else body.sequence

    def call(operation_id: str) -> int:
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

    change = Change("undo", call, content=str(expected), after=service.keep_pictures)
    return await made(service, change, idempotency_key)
