"""Responses that leave in one packet: uvicorn writes head and body one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class OneWrite(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol, with head and body in one write to the socket, which takes a fifth of the
    time of a small request."""

    def connection_made(self, transport: Any) -> None:
        """Begin a connection."""
        super().connection_made(Joined(transport))


class Joined:
    """A transport that joins a first write with the next one, if that comes before the event loop
    goes on."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._held = transport, b""
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        """Write, or hold what may be the head of a response."""
        if self._held:
            self._transport.write(self._held + bytes(data))
            self._held = b""
        elif data:
            self._held = bytes(data)
            self._loop.call_soon(self._flush)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Write what is held, then these."""
        self._flush()
        self._transport.writelines(pieces)

    def write_eof(self) -> None:
        """Write what is held, and no more."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close once everything is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            self._transport.write(self._held)
            self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
