"""What the routes share."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from dkvb.deploy.serve.service import Service

IdempotencyKey = Annotated[
    str | None,
    Header(description="A request repeated with the same key counts once, also after a restart."),
]


async def _service(request: Request) -> Service:  # FastAPI calls others in a thread
    found: Service = request.app.state.service
    return found


ServiceDep = Annotated[Service, Depends(_service)]


def as_json(content: Any, status: int = 200) -> Response:
    """Return a response; NaN, which JSON has not, is null."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), status, media_type="application/json")
