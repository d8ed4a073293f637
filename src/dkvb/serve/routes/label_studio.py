"""Label Studio's machine learning backend: predictions for tasks, learning from annotations.

Images come as data: URIs, since no address and no path of a request is ever opened.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from dkvb.serve import shapes
from dkvb.serve.inputs import Inputs, typed_labels
from dkvb.serve.problems import Problem
from dkvb.serve.routes.changes import acknowledged
from dkvb.serve.routes.common import ServiceDep, as_json
from dkvb.serve.routes.learning import learn_rows
from dkvb.serve.service import Service
from dkvb.serve.writer import Change

router = APIRouter(tags=["label studio"])
SOURCE = "label-studio"
_DATA_URI = re.compile(r"data:image/[a-zA-Z0-9.+-]+;base64,", re.ASCII)
_ANSWER = {200: {"content": {"application/json": {}}}, **shapes.problems(404, 409, 507)}
_LEARN = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
_FORGET = ("ANNOTATIONS_DELETED",)


class Task(BaseModel):
    """A task: its data names a text, an image or an embedding."""

    model_config = ConfigDict(extra="allow")
    id: int | str | None = None
    data: dict[str, Any]


class Setup(BaseModel):
    """What Label Studio says of a project."""

    model_config = ConfigDict(extra="allow")
    project: str | None = None
    label_config: str | None = Field(None, alias="schema")


class PredictRequest(BaseModel):
    """Tasks to predict."""

    model_config = ConfigDict(extra="allow")
    tasks: list[Task]
    label_config: str | None = None


class Webhook(BaseModel):
    """What happened to annotations."""

    model_config = ConfigDict(extra="allow")
    action: str
    task: Task | None = None
    annotation: dict[str, Any] | None = None
    annotations: list[dict[str, Any]] | None = None


@router.post("/setup", responses=_ANSWER)
async def setup(body: Setup, service: ServiceDep) -> Response:
    """Return the version of the model."""
    return as_json({"model_version": _version(service)})


@router.post("/predict", responses=_ANSWER)
async def predict(body: PredictRequest, service: ServiceDep) -> Response:
    """Return one choice per task."""
    if not body.tasks:
        return as_json({"results": [], "model_version": _version(service)})
    names = _names(body.label_config)
    found = [_inputs(service, task.data) for task in body.tasks]
    X = [(await service.embeddings(one))[0] for one in found]
    results = []
    for x in X:
        record = (await service.predict(x)).records()[0]
        choice = {**names, "type": "choices", "value": {"choices": [str(record["label"])]}}
        results.append({
            "result": [choice],
            "score": record.get("probability"),
            "model_version": _version(service),
        })  # fmt: skip
    return as_json({"results": results, "model_version": _version(service)})


@router.post("/webhook", responses=_ANSWER)
async def webhook(body: Webhook, service: ServiceDep) -> Response:
    """Learn a new annotation, relabel by a changed one, forget a deleted one."""
    if body.action in _LEARN and body.annotation is not None and body.task is not None:
        return as_json(await _learn(service, body.action, body.annotation, body.task))
    if body.action in _FORGET and body.annotations:
        return as_json(await _forget(service, [_row_id(one) for one in body.annotations]))
    return as_json({"operation": None, "note": f"nothing to do for {body.action[:60]}"})


async def _learn(service: Service, action: str, annotation: Any, task: Task) -> dict[str, Any]:
    label = _choice(annotation)
    if label is None:
        return {"operation": None, "note": "the annotation has no choice"}
    own, writer = _row_id(annotation), service.writer
    when = annotation.get("updated_at") or annotation.get("created_at") or ""
    key = f"{own} {action} {when}"[:200]
    repeated = any(one.id == key and one.operation == "learn" for one in service.model.history)
    if service.model.keeps_ids and not repeated and own in service.model.ids():

        def call(operation_id: str) -> int:
            new = typed_labels([label], service.model.classifier.classes_, True)
            return writer.folder.relabel(ids=[own], y_new=new, operation_id=operation_id)

        change = Change("relabel", call, content=label)
        return acknowledged(service, await writer.make(change, key))
    inputs = _inputs(service, task.data)
    X, pictures = await service.embeddings(inputs)
    ids = [own.partition("/")[2]] if service.model.keeps_ids else None
    source = SOURCE if service.model.keeps_ids else None
    labelled = Inputs(X, labels=[label], ids=ids, source=source, textual=True)
    return await learn_rows(service, labelled, X, pictures, key)


async def _forget(service: Service, ids: list[str]) -> dict[str, Any]:
    writer = service.writer
    known = set(service.model.ids()) if service.model.keeps_ids else set()
    gone = [own for own in ids if own in known]
    if not gone:
        return {"operation": None, "note": "the annotations were not learned"}

    def call(operation_id: str) -> int:
        return writer.folder.forget_samples(ids=gone, operation_id=operation_id)

    change = Change("forget_samples", call, after=service.keep_pictures)
    done = await writer.make(change, None)
    return acknowledged(service, done)


def _row_id(annotation: dict[str, Any]) -> str:
    own = annotation.get("id")
    if isinstance(own, bool) or not isinstance(own, int | str) or "/" in str(own):
        raise ValueError(f"annotation: expected an id; got {own!r:.60}")
    return f"{SOURCE}/{own}"


def _choice(annotation: dict[str, Any]) -> str | None:
    """The first choice of an annotation."""
    results = annotation.get("result")
    for one in results if isinstance(results, list) else []:
        value = one.get("value") if isinstance(one, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        if isinstance(choices, list) and choices and isinstance(choices[0], str):
            return str(choices[0])
    return None


def _inputs(service: Service, data: dict[str, Any]) -> Inputs:
    """The text, the image or the embedding among the data of a task."""
    takes = None if service.encoding is None else service.encoding.takes
    for value in data.values():
        if isinstance(value, list) and value and all(type(x) in (int, float) for x in value):
            return Inputs(embeddings=service.checked([value]))
        if isinstance(value, str) and (found := _DATA_URI.match(value)):
            return Inputs(images=[_decoded(value[found.end() :])])
        if isinstance(value, str) and takes == "text":
            return Inputs(texts=[value])
    raise Problem(
        422,
        f"task: expected {takes or 'embedding'} data: a text, an image as a data: URI, or a list "
        f"of numbers; got {', '.join(map(repr, list(data)[:5]))}; addresses and paths are never "
        "opened",
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("task: expected base64 in the data: URI; got another text") from None


def _names(label_config: str | None) -> dict[str, str]:
    """The names of the control and of its object in a labelling configuration."""
    tag = re.search(r"<Choices\b([^>]*)>", label_config or "")
    attributes = dict(re.findall(r'(\w+)="([^"]*)"', tag[1])) if tag else {}
    return {
        "from_name": attributes.get("name", "choice"),
        "to_name": attributes.get("toName", "item"),
    }


def _version(service: Service) -> str:
    return f"{service.settings.name}-{service.sequence}"
