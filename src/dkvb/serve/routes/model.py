"""What there is to know of the model."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

import dkvb
from dkvb.serve import shapes
from dkvb.serve.inputs import LabelledRows, body_schema, read_inputs, typed_labels
from dkvb.serve.problems import Problem
from dkvb.serve.routes.common import ServiceDep, as_json
from dkvb.serve.service import Service
from dkvb.serve.why import has_image

router = APIRouter(tags=["model"])
_FIELDS = ("label", "text", "prediction_id")


class Format(StrEnum):
    """What a model is exported as."""

    safetensors = "safetensors"
    onnx = "onnx"


@router.get("/v1/model", responses={200: {"model": shapes.ModelFacts}, **shapes.problems()})
async def facts(service: ServiceDep) -> Response:
    """Return what the service serves."""
    model, limits = service.model, service.limits
    last = model.undoable
    return as_json({
        "name": service.settings.name,
        "version": dkvb.__version__,
        "sequence": service.sequence,
        "classifier": type(model.classifier).__name__,
        "encoder": model.encoder,
        "takes": None if service.encoding is None else service.encoding.takes,
        "width": model.width,
        "classes": len(model.classifier.classes_),
        "rows": _total(model.classifier),
        "keeps_ids": model.keeps_ids,
        "keeps_images": service.thumbnails is not None,
        "undo": None if last is None else {
            "operation": last.operation, "count": last.count, "sequence": last.sequence,
        },
        "limits": {
            "body_bytes": limits.body_bytes, "pixels": limits.pixels, "rows": limits.rows,
        },
    })  # fmt: skip


@router.get("/v1/classes", responses={200: {"model": shapes.Classes}, **shapes.problems()})
async def classes(service: ServiceDep) -> Response:
    """Return the classes and how many rows of each were learned."""
    classifier = service.model.classifier
    labels, counts = classifier.classes_, getattr(classifier, "class_count_", {})
    return as_json({
        "sequence": service.sequence,
        "rows": _total(classifier),
        "kind": _kind(labels),
        "classes": [{"label": one, "count": counts.get(one)} for one in labels.tolist()],
    })  # fmt: skip


@router.get("/v1/quality", responses={200: {"model": shapes.Quality}, **shapes.problems(409)})
async def quality(service: ServiceDep) -> Response:
    """Return accuracy and confusion by leave-one-out, and the running (prequential) accuracy."""
    return as_json(await _in_thread(_left_out, service))


@router.post(
    "/v1/quality",
    responses={200: {"model": shapes.Quality}, **shapes.problems(404, 409)},
    openapi_extra=body_schema(LabelledRows, _FIELDS),
)
async def held_out_quality(request: Request, service: ServiceDep) -> Response:
    """Return accuracy and confusion on rows that are sent with their labels; none is learned."""
    inputs = await read_inputs(request, service.limits, LabelledRows)
    if inputs.labels is None:
        raise ValueError("labels: expected labels, one per row; got none")
    X, _ = await service.embeddings(inputs)
    answers = await service.predict(X)
    known = answers.classes
    y = typed_labels(inputs.labels, known, inputs.textual)
    alien = next((one for one in y if one not in known.tolist()), None)
    if alien is not None:
        raise ValueError(f"labels: expected classes of this model; got {alien!r}; learn it first")
    table = np.zeros((len(known), len(known)), np.int64)
    given = np.searchsorted(known, np.array(y, dtype=known.dtype))
    is_known = np.isin(answers.labels, known)  # others are "unknown", by the novelty threshold
    place = np.searchsorted(known, answers.labels[is_known])
    np.add.at(table, (given[is_known], place), 1)
    totals = np.bincount(given, minlength=len(known))
    content = _quality_facts(service, known, table, totals)
    return as_json({**content, "kind": "held-out", "rows": len(y)})


@router.get("/v1/suspects", responses={200: {"model": shapes.Suspects}, **shapes.problems(409)})
async def suspects(service: ServiceDep, n: Annotated[int, Query(ge=1, le=1000)] = 20) -> Response:
    """Return learned rows whose label the others contradict, the clearest first."""
    classifier = service.model.classifier
    if not service.model.keeps_ids:
        raise _cannot(classifier, "suspects", "keeps the rows that it learns")
    found = await _in_thread(classifier.suspects, n)
    names = ("id", "label", "predicted", "probability")
    return as_json({
        "sequence": service.sequence,
        "suspects": [
            {**{name: getattr(one, name) for name in names}, "image": has_image(service, one.id)}
            for one in found
        ],
    })  # fmt: skip


@router.get("/v1/rows", responses={200: {"model": shapes.LearnedRows}, **shapes.problems(404, 409)})
async def rows(
    service: ServiceDep,
    label: Annotated[str | None, Query(description="Only rows of this class.")] = None,
    start: Annotated[int, Query(ge=0)] = 0,
    n: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return ids and labels of learned rows, where the classifier keeps them."""
    model = service.model
    if not model.keeps_ids:
        raise _cannot(model.classifier, "rows", "keeps the rows that it learns")
    ids, labels = model.classifier.rows()
    pairs = [(own, one) for own, one in zip(ids, labels.tolist(), strict=True)
             if label is None or str(one) == label]  # fmt: skip
    if label is not None and label not in map(str, model.classifier.classes_.tolist()):
        raise Problem(404, f"label: expected a class of this model; got {label[:60]!r}")
    shown = [{"id": own, "label": one, "image": has_image(service, own)}
             for own, one in pairs[start : start + n]]  # fmt: skip
    more = start + n if start + n < len(pairs) else None
    content = {"sequence": service.sequence, "total": len(pairs), "rows": shown, "next": more}
    return as_json(content)


@router.get(
    "/v1/images/{row_id:path}",
    responses={200: {"content": {"image/jpeg": {}}}, **shapes.problems(404)},
)
async def image(row_id: str, service: ServiceDep) -> Response:
    """Return the small picture of a learned image; only with --keep-images."""
    picture = None
    if service.thumbnails is not None:
        picture = service.thumbnails.get(row_id)
        if picture is None and row_id.isdecimal():
            picture = service.thumbnails.get(int(row_id))
    if picture is None:
        raise Problem(404, f"row_id: expected a row whose image was kept; got {row_id[:60]!r}; "
                           "images are kept with dkvb serve --keep-images")  # fmt: skip
    return Response(picture, media_type="image/jpeg")


@router.get("/v1/history", responses={200: {"model": shapes.History}, **shapes.problems()})
async def history(
    service: ServiceDep,
    after: Annotated[int, Query(ge=0, description="Only operations after this number.")] = 0,
    n: Annotated[int, Query(ge=1, le=10_000, description="At most so many, the latest.")] = 1000,
) -> Response:
    """Return what was done to the model, the oldest first; never labels or rows."""
    entries = [one for one in service.model.history if (one.sequence or 0) > after][-n:]
    return as_json({"history": [
        {"sequence": one.sequence, "operation": one.operation, "count": one.count,
         "time": one.time, "operation_id": one.id}
        for one in entries
    ]})  # fmt: skip


@router.get(
    "/v1/export",
    responses={200: {"content": {"application/octet-stream": {}}}, **shapes.problems(409)},
)
async def export(service: ServiceDep, format: Format = Format.safetensors) -> Response:
    """Return the model as one file, which dkvb.load opens, or as ONNX."""
    content = await _in_thread(_exported, service.model.classifier, format)
    name = f"{service.settings.name}.{format}"
    quoted = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "_" for c in name)
    headers = {"Content-Disposition": f'attachment; filename="{quoted}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


# ----------------------------------------------------------------------------------------- shared
async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _left_out(service: Service) -> dict[str, Any]:
    classifier = service.model.classifier
    labels = classifier.classes_
    if not hasattr(classifier, "loo_score_") or not _total(classifier):
        note = ("nothing was learned yet" if not len(labels) else
                f"{type(classifier).__name__} keeps no rows to leave out; POST labelled rows here "
                "for held-out accuracy")  # fmt: skip
        content = _quality_facts(service, labels, None, None)
        return {**content, "kind": None, "rows": 0, "note": note}
    table = classifier.confusion()
    content = _quality_facts(service, labels, table, table.sum(axis=1))
    return {**content, "kind": classifier.loo_kind_, "rows": int(table.sum())}


def _quality_facts(service: Service, labels: Any, table: Any, totals: Any) -> dict[str, Any]:
    counts = getattr(service.model.classifier, "class_count_", {})
    measured = table is not None and totals.sum() > 0
    per_class = [
        {
            "label": label,
            "count": counts.get(label),
            "accuracy": float(table[i, i] / totals[i]) if measured and totals[i] else None,
        }
        for i, label in enumerate(labels.tolist())
    ]
    return {
        "sequence": service.sequence,
        "accuracy": float(np.trace(table) / totals.sum()) if measured else None,
        "classes": per_class,
        "confusion": None if table is None else table.tolist(),
        "prequential": service.prequential.facts(),
        "note": None,
    }


def _exported(classifier: Any, format: Format) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"model.{format}"
        if format is Format.onnx:
            dkvb.export_onnx(classifier, path)
        else:
            classifier.save(path)
        return path.read_bytes()


def _cannot(classifier: Any, what: str, needed: str) -> Problem:
    return Problem(
        409,
        f"{what}: expected a classifier that {needed}; {type(classifier).__name__} does not; fit a "
        "model with --classifier kernel --keep examples",
    )


def _kind(labels: Any) -> str | None:
    if not len(labels):
        return None
    return {"b": "boolean", "U": "string"}.get(labels.dtype.kind, "number")


def _total(classifier: Any) -> int:
    return sum(getattr(classifier, "class_count_", {}).values())
