"""The Open Inference Protocol (version 2), so that its clients can ask for predictions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

import dkvb
from dkvb.estimators.answers import Answers
from dkvb.serve import shapes
from dkvb.serve.inputs import Inputs
from dkvb.serve.problems import Problem
from dkvb.serve.routes.common import ServiceDep, as_json
from dkvb.serve.service import Service

router = APIRouter(prefix="/v2", tags=["open inference protocol"])
Datatype = Literal[
    "FP64", "FP32", "FP16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16",
    "UINT8", "BOOL", "BYTES",
]  # fmt: skip
_FACTS = {200: {"content": {"application/json": {}}}, **shapes.problems(404)}


class Tensor(BaseModel):
    """A tensor of a request: embeddings [n, m], or texts [n] as BYTES."""

    name: str
    shape: list[int] = Field(min_length=1, max_length=2)
    datatype: Datatype
    data: list[Any]
    parameters: dict[str, Any] | None = None


class Output(BaseModel):
    """An output that is asked for."""

    name: str
    parameters: dict[str, Any] | None = None


class InferenceRequest(BaseModel):
    """What to predict."""

    id: str | None = None
    inputs: list[Tensor] = Field(min_length=1, max_length=1)
    outputs: list[Output] | None = None
    parameters: dict[str, Any] | None = None


@router.get("", responses=_FACTS)
async def server_metadata() -> Response:
    """Return what this server is."""
    return as_json({"name": "dkvb", "version": dkvb.__version__, "extensions": []})


@router.get("/health/live", responses=_FACTS)
async def live() -> Response:
    """Return that the process is there."""
    return as_json({"live": True})


@router.get("/health/ready", responses=_FACTS)
async def ready() -> Response:
    """Return that the model can be asked."""
    return as_json({"ready": True})


@router.get("/models/{name}", responses=_FACTS)
async def model_metadata(name: str, service: ServiceDep) -> Response:
    """Return the inputs and outputs of the model."""
    _check_name(service, name)
    inputs: dict[str, Any] = {"name": "embeddings", "datatype": "FP32",
                              "shape": [-1, service.model.width or -1]}  # fmt: skip
    if service.encoding is not None and service.encoding.takes == "text":
        inputs = {"name": "texts", "datatype": "BYTES", "shape": [-1]}
    n = len(service.model.classifier.classes_)
    return as_json({
        "name": name,
        "versions": [str(service.sequence)],
        "platform": "dkvb",
        "inputs": [inputs],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "probability", "datatype": "FP64", "shape": [-1, n]},
            {"name": "novelty", "datatype": "FP64", "shape": [-1]},
            {"name": "classes", "datatype": "BYTES", "shape": [n]},
        ],
    })  # fmt: skip


@router.get("/models/{name}/ready", responses=_FACTS)
async def model_ready(name: str, service: ServiceDep) -> Response:
    """Return that the model can be asked."""
    _check_name(service, name)
    return as_json({"name": name, "ready": True})


@router.post(
    "/models/{name}/infer",
    responses={200: {"content": {"application/json": {}}}, **shapes.problems(404, 409)},
)
async def infer(name: str, body: InferenceRequest, service: ServiceDep) -> Response:
    """Return labels, probabilities and novelty for embeddings or texts."""
    _check_name(service, name)
    inputs = _inputs(body.inputs[0])
    if len(inputs) > service.limits.rows:
        raise Problem(413, f"inputs: expected at most {service.limits.rows:,} rows; "
                           f"got {len(inputs):,}; send them in parts")  # fmt: skip
    X, _ = await service.embeddings(inputs)
    outputs = _outputs(await service.predict(X))
    if body.outputs is not None:
        asked = [one.name for one in body.outputs]
        unknown = next((one for one in asked if one not in outputs), None)
        if unknown is not None:
            raise ValueError(f"outputs: expected names among {', '.join(outputs)}; got {unknown!r}")
        outputs = {one: outputs[one] for one in asked}
    content: dict[str, Any] = {"model_name": name, "model_version": str(service.sequence)}
    if body.id is not None:
        content["id"] = body.id
    return as_json({**content, "outputs": list(outputs.values())})


def _check_name(service: Service, name: str) -> None:
    if name != service.settings.name:
        raise Problem(
            404, f"name: expected {service.settings.name!r}, the model of this service; got "
            f"{name[:60]!r}",
        )  # fmt: skip


def _inputs(tensor: Tensor) -> Inputs:
    count = int(np.prod(tensor.shape, dtype=object))
    if tensor.datatype == "BYTES":
        if count != len(tensor.data) or not all(isinstance(one, str) for one in tensor.data):
            raise ValueError(f"inputs, {tensor.name}: expected {count} texts; "
                             f"got {len(tensor.data)} values")  # fmt: skip
        return _some(Inputs(texts=tensor.data))
    try:
        rows = np.array(
            tensor.data, dtype=np.float64
        ).ravel()  # nested or flat, as the protocol has
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"inputs, {tensor.name}: expected numbers of datatype {tensor.datatype}; "
                         "got others") from None  # fmt: skip
    if min(tensor.shape) < 0 or len(rows) != count:
        raise ValueError(f"inputs, {tensor.name}: expected {count} numbers for shape "
                         f"{tensor.shape}; got {len(rows)}")  # fmt: skip
    shape = tensor.shape if len(tensor.shape) == 2 else [1, *tensor.shape]
    return _some(Inputs(embeddings=rows.reshape(shape)))


def _some(inputs: Inputs) -> Inputs:
    if not len(inputs):
        raise ValueError("inputs: expected at least one row; got none")
    return inputs


def _outputs(answers: Answers) -> dict[str, dict[str, Any]]:
    outputs = {"label": _tensor("label", "BYTES", answers.labels.shape, _texts(answers.labels))}
    numbers = {"probability": answers.probabilities, "novelty": answers.novelty}
    for name, values in numbers.items():
        if values is not None:
            flat = values.astype(np.float64).ravel().tolist()
            outputs[name] = _tensor(name, "FP64", values.shape, flat)
    classes = answers.classes
    outputs["classes"] = _tensor("classes", "BYTES", classes.shape, _texts(classes))
    return outputs


def _texts(labels: Any) -> list[str]:
    return [str(one) for one in labels.tolist()]


def _tensor(name: str, datatype: str, shape: Any, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}
