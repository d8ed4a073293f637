"""Who may ask, and what browsers may do with the answers."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from secrets import compare_digest
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dkvb.serve.problems import Problem, response_to

OPEN_PATHS = ("/", "/health", "/ready")  # these tell nothing of the model
OPEN_PREFIXES = ("/page/", "/v2/health/")
_MOST_TOKEN = 4096

# Of answers that are data: nothing in them is to be run, shown in a frame or kept.
DATA_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE_HEADERS = DATA_HEADERS | {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
        "img-src 'self' blob: data:; media-src 'self' blob:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


_DATA, _PAGE = _raw(DATA_HEADERS), _raw(PAGE_HEADERS)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Middleware: the token where there is one; else only pages and programs of this machine."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on that may come in, and protect what goes out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                page = scope["path"] == "/" or scope["path"].startswith("/page/")
                more = _PAGE if page else _DATA
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        problem = self._problem(scope)
        if problem is not None:
            await response_to(problem, scope["path"])(scope, receive, protected)
            return
        await self._app(scope, receive, protected)

    def _problem(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        if self._token is None:
            return _foreign(headers)
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_PREFIXES):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode()[:_MOST_TOKEN] if scheme.lower() == "bearer" else b""
        if compare_digest(sent, self._token):
            return None
        return Problem(
            401,
            "Authorization: expected Bearer and the token of this service; got "
            f"{'another one' if sent else 'none'}; the token is in the file that dkvb serve "
            "was given as --token-file",
            {"WWW-Authenticate": 'Bearer realm="dkvb"'},
        )


@lru_cache(maxsize=256)
def _is_local(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:  # no host at all
        return False


def _foreign(headers: Headers) -> Problem | None:
    """Without a token: the problem of a request that another site made a browser send."""
    host = headers.get("host", "")
    if host and not _is_local(host):
        return Problem(
            403,
            f"Host: expected localhost or 127.0.0.1, since this service has no token; got "
            f"{host[:100]}; start it with --token-file to reach it by another name",
        )
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return Problem(
            403,
            f"Origin: expected a page of this service; got {origin[:100]}; other sites may not "
            "use it",
        )
    return None
