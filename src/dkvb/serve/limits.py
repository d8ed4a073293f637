"""Bodies: refused by their size before they are parsed, and when they come too slowly."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dkvb.serve.problems import Problem, response_to
from dkvb.serve.settings import Limits

_LINGER = 1.0  # seconds
_CLOSE = {"Connection": "close"}  # the rest of such a body is not read


class BodyLimits:
    """Middleware that counts the bytes of a body, and its seconds."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on whose body keeps to the limits."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        said = _content_length(scope)
        if said is not None and said > self._limits.body_bytes:
            await _drain(receive)
            await response_to(self._too_large(said), scope["path"])(scope, receive, send)
            return
        await self._app(scope, self._counting(receive), send)

    def _counting(self, receive: Receive) -> Receive:
        got, deadline = 0, asyncio.get_running_loop().time() + self._limits.body_seconds
        complete = False

        async def counted() -> Message:
            nonlocal got, complete
            if complete:  # whoever waits for a disconnect may wait
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                complete = True
                raise Problem(
                    408,
                    f"body: expected all of it within {self._limits.body_seconds:g} seconds; got "
                    f"{got} bytes; send it faster, or in several requests",
                    _CLOSE,
                ) from None
            got += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if got > self._limits.body_bytes:
                complete = True
                await _drain(receive)
                raise self._too_large(got)
            return message

        return counted

    def _too_large(self, size: int) -> Problem:
        return Problem(
            413,
            f"body: expected at most {self._limits.body_bytes:,} bytes; got {size:,}; send it in "
            "several requests",
            _CLOSE,
        )


async def _drain(receive: Receive) -> None:
    """Let the rest of a body come for a moment: a client that still sends would not see why the
    connection is closed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body", False):
                pass


def _content_length(scope: Any) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None
