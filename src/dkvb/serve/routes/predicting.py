"""Predict, and say what to label next."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from dkvb.serve import shapes
from dkvb.serve.inputs import Rows, body_schema, query_schema, read_inputs, read_query
from dkvb.serve.problems import Problem, problem_of, response_to
from dkvb.serve.routes.common import ServiceDep, as_json
from dkvb.serve.service import Service
from dkvb.serve.suggestions import suggest_rows
from dkvb.serve.why import why

router = APIRouter(tags=["predict"])
PREDICT = "/v1/predict"
MOST_EXPLAINED = 20
_FIELDS = ("text", "prediction_id")
Number = Annotated[int, Query(ge=1, le=1000)]


class Asked(BaseModel):
    """What else to say of each row."""

    model_config = ConfigDict(extra="forbid")
    top: int | None = Field(None, ge=1, le=1000, description="Classes to name per row.")
    remember: bool = Field(False, description="Return ids that learn takes in place of the rows.")
    explain: bool = Field(False, description="Say what decided; for few rows only.")


_USUAL = Asked.model_validate({})


@router.post(
    PREDICT,
    responses={200: {"model": shapes.Predictions}, **shapes.problems(404, 409)},
    openapi_extra=body_schema(Rows, _FIELDS) | query_schema(Asked),
)
async def predict(request: Request) -> Response:
    """Return the label of each row, its probability, the runner-up and the row's novelty."""
    service: Service = request.app.state.service
    asked = read_query(request, Asked) if request.scope["query_string"] else _USUAL
    inputs = await read_inputs(request, service.limits)
    X, pictures = await service.embeddings(inputs)
    if asked.explain and len(X) > MOST_EXPLAINED:
        raise Problem(413, f"explain: expected at most {MOST_EXPLAINED} rows; got {len(X)}; ask "
                           "for fewer, or without explain")  # fmt: skip
    answers = await service.predict(X)
    records = answers.records(asked.top)
    if asked.remember and inputs.prediction_ids is not None:
        # The same rows, asked again: what is scored when they are learned is the later answer.
        service.remembered.update(inputs.prediction_ids, answers.labels.tolist())
        for name, record in zip(inputs.prediction_ids, records, strict=True):
            record["prediction_id"] = name
    elif asked.remember:
        for row, record, picture in zip(X, records, pictures, strict=True):
            record["prediction_id"] = service.remembered.add(row, record["label"], picture)
    if asked.explain:
        reasons = await asyncio.get_running_loop().run_in_executor(None, why, service, X)
        for record, reason in zip(records, reasons, strict=True):
            record["why"] = reason
    content = {"model": service.settings.name, "sequence": service.sequence}
    return as_json({**content, "predictions": records})


class Direct:
    """Middleware that calls `predict` itself: FastAPI's layers take longer than a small request."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._route = next(one for one in router.routes if getattr(one, "path", "") == PREDICT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to predict, and pass others on."""
        if scope["type"] != "http" or scope["path"] != PREDICT or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope.update(app=self._app, route=self._route)
        try:
            response = await predict(Request(scope, receive))
        except Exception as error:
            response = response_to(problem_of(error), PREDICT)
        await response(scope, receive, send)


@router.post(
    "/v1/suggestions",
    responses={200: {"model": shapes.Suggestions}, **shapes.problems(404, 409)},
    openapi_extra=body_schema(Rows, _FIELDS),
)
async def suggest(request: Request, service: ServiceDep, n: Number = 10) -> Response:
    """Return which of the rows that are sent to label next."""
    inputs = await read_inputs(request, service.limits)
    X, _ = await service.embeddings(inputs)
    return await _suggested(service, X, inputs.prediction_ids, n)


@router.get(
    "/v1/suggestions",
    responses={200: {"model": shapes.Suggestions}, **shapes.problems(409)},
)
async def suggest_remembered(service: ServiceDep, n: Number = 10) -> Response:
    """Return which of the remembered predictions (remember=true) to label next."""
    ids, X = service.remembered.all()
    if not ids:
        return as_json({"sequence": service.sequence, "suggestions": []})
    return await _suggested(service, X, ids, n)


async def _suggested(service: Service, X: Any, ids: list[str] | None, n: int) -> Response:
    answers = await service.predict(X)
    loop, classifier = asyncio.get_running_loop(), service.model.classifier
    chosen = await loop.run_in_executor(None, suggest_rows, classifier, X, answers, n)
    records = answers.records()
    suggestions = [
        {
            "row": row,
            "prediction_id": None if ids is None else ids[row],
            "label": records[row]["label"],
            "probability": records[row].get("probability"),
            "novelty": records[row].get("novelty"),
        }
        for row in chosen
    ]
    return as_json({"sequence": service.sequence, "suggestions": suggestions})
