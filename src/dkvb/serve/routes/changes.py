"""What all changes of the model share: what they are about, and their answer."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from dkvb.serve import shapes
from dkvb.serve.problems import Problem
from dkvb.serve.routes.common import as_json
from dkvb.serve.service import Service
from dkvb.serve.writer import Acknowledgement, Change

ANSWER = {200: {"model": shapes.Acknowledged}, **shapes.problems(404, 409, 507)}


async def made(service: Service, change: Change, key: str | None) -> Response:
    """Make a change; return its answer once it is on disk."""
    return as_json(acknowledged(service, await service.writer.make(change, key)))


def acknowledged(
    service: Service, done: Acknowledgement, ids: list[Any] | None = None
) -> dict[str, Any]:
    """Return what to answer of an operation that is on disk."""
    if not done.repeated:
        service.metrics.rows.labels(done.operation).inc(done.count)
    return {**vars(done), "classes": len(service.model.classifier.classes_), "ids": ids}


def is_known(service: Service, label: Any) -> bool:
    """Return whether the model has a class of that name and kind."""
    known = service.model.classifier.classes_.tolist()
    return any(type(one) is type(label) and one == label for one in known)


def check_known(service: Service, labels: list[Any], name: str) -> None:
    """Raise for a class that the model does not know."""
    unknown = [label for label in labels if not is_known(service, label)]
    if not labels or unknown:
        known = ", ".join(map(str, service.model.classifier.classes_.tolist()[:10]))
        shown = repr(unknown[0])[:100] if unknown else "none"
        raise Problem(
            404 if unknown else 422,
            f"{name}: expected classes of this model ({known or 'it has none yet'}); got {shown}; "
            "GET /v1/classes lists them",
        )


def check_keeps_ids(service: Service) -> None:
    """Raise where learned rows have no ids."""
    if not service.model.keeps_ids:
        name = type(service.model.classifier).__name__
        raise Problem(
            409,
            f"ids, source: expected a classifier that keeps ids of rows; {name} keeps none; send "
            "the embeddings with their labels instead, or fit a model with --classifier kernel",
        )


def known_ids(service: Service, ids: list[Any]) -> list[Any]:
    """Return ids if all are of learned rows."""
    check_keeps_ids(service)
    missing = set(ids) - set(service.model.ids())
    if not ids or missing:
        shown = ", ".join(repr(one)[:60] for one in sorted(missing, key=str)[:3]) or "none"
        raise Problem(404 if ids else 422, f"ids: expected those of learned rows; got {shown}")
    return ids


def ids_of_source(service: Service, source: str) -> list[Any]:
    """Return the ids of all rows that were learned with a source."""
    check_keeps_ids(service)
    known, prefix = service.model.ids(), f"{source}/"
    found = [one for one in known if isinstance(one, str) and one.startswith(prefix)]
    if not found:
        raise Problem(404, f"source: expected one of learned rows; got {source[:60]!r}")
    return found
