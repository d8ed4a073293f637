"""What the routes share."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from dkvb.serve.service import Service

IdempotencyKey = Annotated[
    str | None,
    Header(description="A request repeated with the same key counts once, also after a restart."),
]


async def _service(request: Request) -> Service:  # FastAPI calls others in a thread
    found: Service = request.app.state.service
    return found


ServiceDep = Annotated[Service, Depends(_service)]


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def as_json(content: Any, status: int = 200) -> Response:
    """Return a response with the JSON of plain values, which are finite."""
    text = _JSON.encode(content).encode("utf-8", "surrogatepass")
    return Response(text, status, media_type="application/json")
