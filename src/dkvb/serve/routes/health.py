"""Whether the service is there, whether it can answer, and what it has done."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from dkvb.serve import shapes
from dkvb.serve.routes.common import ServiceDep, as_json

router = APIRouter(tags=["health"])


@router.get("/health", responses={200: {"model": shapes.Health}, **shapes.problems()})
async def health() -> Response:
    """Return that the process is there."""
    return as_json({"status": "UP", "model_class": "dkvb"})


@router.get("/ready", responses={200: {"model": shapes.Health}, **shapes.problems()})
async def ready() -> Response:
    """Return that the model and its encoder are loaded: before that, no request is accepted."""
    return as_json({"status": "READY", "model_class": "dkvb"})


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **shapes.problems()})
async def metrics(service: ServiceDep) -> Response:
    """Return counters in Prometheus' text format."""
    gauges, classifier = service.metrics, service.model.classifier
    gauges.model.labels("classes").set(len(classifier.classes_))
    gauges.model.labels("rows").set(sum(getattr(classifier, "class_count_", {}).values()))
    gauges.model.labels("sequence").set(service.sequence)
    for name, queue in (("encode", service.encoder), ("predict", service.predictor)):
        gauges.waiting.labels(name).set(len(queue))
    accuracy = service.prequential.facts()["accuracy"]
    if accuracy is not None:
        gauges.accuracy.set(accuracy)
    return Response(gauges.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
