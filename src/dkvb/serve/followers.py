"""Readers follow what the writer does, and pass on to it what only the writer can answer."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from dkvb.serve.problems import busy, response_to
from dkvb.store import Following, Model

log = logging.getLogger("dkvb.serve")

EVERY = 0.2  # seconds between looks at the folder
# What changes the model, and what only the writer remembers.
WRITER_PATHS = frozenset(
    ("/v1/learn", "/v1/forget", "/v1/relabel", "/v1/rename", "/v1/merge", "/v1/undo",
     "/v1/suggestions", "/v1/quality", "/webhook")
)  # fmt: skip
_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"))


class Follower:
    """The model as it was on disk at most a second ago."""

    def __init__(self, path: Path, device: str) -> None:
        self._following = Following(path, device)
        self._parent = os.getppid()

    @property
    def model(self) -> Model:
        """The model as it was read last."""
        return self._following.model

    async def run(self) -> None:
        """Follow until the writer, which started this process, is gone."""
        loop = asyncio.get_running_loop()
        while os.getppid() == self._parent:
            try:
                await loop.run_in_executor(None, self._following.look)
            except (OSError, ValueError) as error:  # the next look may find it whole
                log.warning("the model cannot be read: %s", error)
            await asyncio.sleep(EVERY)
        os._exit(0)


class Forwarding:
    """Middleware of a reader: passes requests for the writer on, over a local socket."""

    def __init__(self, app: ASGIApp, socket: str, seconds: float) -> None:
        self._app = app
        transport = httpx.AsyncHTTPTransport(uds=socket, limits=httpx.Limits(max_connections=None))
        self._client = httpx.AsyncClient(
            transport=transport, timeout=httpx.Timeout(seconds + 10), base_url="http://writer"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer here, or as the writer does."""
        if scope["type"] != "http" or not _is_for_writer(scope):
            await self._app(scope, receive, send)
            return
        request = self._client.build_request(
            scope["method"],
            httpx.URL(scheme="http", host="writer", raw_path=_raw_path(scope)),
            headers=[pair for pair in scope["headers"] if pair[0] not in _HOP_BY_HOP],
            content=_body(receive) if scope["method"] not in ("GET", "HEAD") else None,
        )
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.TransportError:
            problem = busy("the process that changes the model is not there")
            await response_to(problem)(scope, receive, send)
            return
        try:
            headers = [pair for pair in answer.headers.raw if pair[0].lower() not in _HOP_BY_HOP]
            await send({"type": "http.response.start", "status": answer.status_code,
                        "headers": headers})  # fmt: skip
            async for chunk in answer.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()


def _is_for_writer(scope: Scope) -> bool:
    if scope["path"] in WRITER_PATHS:
        return True
    # An id of a prediction is of use where it is learned.
    return scope["path"] == "/v1/predict" and b"remember=" in scope["query_string"]


def _raw_path(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


async def _body(receive: Receive):  # type: ignore[no-untyped-def]
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client has gone")
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]
