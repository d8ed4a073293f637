"""Errors as `application/problem+json` (RFC 9457): the library's message, never a traceback."""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sklearn.exceptions import NotFittedError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dkvb.store import AppliedError, RepeatedIdError

log = logging.getLogger("dkvb.serve")

MEDIA_TYPE = "application/problem+json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDIES = {
    404: "GET /openapi.json lists the routes",
    405: "GET /openapi.json lists the methods of each route",
}


class Problem(HTTPException):
    """An error with its status, and what else a client may want to know."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(status, detail, headers)
        self.members = members


def busy(what: str, seconds: int = 1) -> Problem:
    """Return the problem of a service that has too much to do."""
    return Problem(503, f"{what}; try again later", {"Retry-After": str(seconds)})


def problem_of(error: BaseException) -> Problem:
    """Return the problem that an exception of the library is to a client."""
    if isinstance(error, Problem):
        return error
    text = " ".join(str(error).split())
    if isinstance(error, HTTPException):
        detail = (
            f"{error.detail}; {_REMEDIES[error.status_code]}"
            if (error.status_code in _REMEDIES)
            else str(error.detail)
        )
        return Problem(error.status_code, detail, dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        return Problem(422, _validation_text(error))
    if isinstance(error, ClientDisconnect):
        return Problem(400, "body: expected all of it; the client closed the connection")
    if isinstance(error, NotFittedError | RepeatedIdError):
        return Problem(409, text)
    if isinstance(error, OSError):
        caused = error.__cause__ if isinstance(error, AppliedError) else error
        full = isinstance(caused, OSError) and caused.errno in _FULL
        if full or isinstance(error, AppliedError):
            return Problem(507 if full else 500, text)
    if isinstance(error, MemoryError):
        return Problem(413, text or "the request takes more memory than there is; send less")
    if isinstance(error, ValueError | TypeError):
        return Problem(422, text)
    log.error("unexpected error", exc_info=error)
    return Problem(500, "an error of the service, which its log describes; nothing was changed")


def response_to(problem: Problem, path: str = "") -> Response:
    """Return the response that describes a problem."""
    status = problem.status_code
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": problem.detail,
        **problem.members,
    }
    if path.startswith("/v2"):  # the name that the Open Inference Protocol has for it
        content["error"] = problem.detail
    return JSONResponse(content, status, problem.headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every exception with a problem."""

    async def answer(request: Request, error: Exception) -> Response:
        return response_to(problem_of(error), request.url.path)

    for kind in (HTTPException, RequestValidationError, ValueError, TypeError, OSError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(MemoryError, answer)
    app.add_exception_handler(NotFittedError, answer)
    app.add_exception_handler(ClientDisconnect, answer)
    app.add_exception_handler(Exception, answer)


def _validation_text(error: RequestValidationError) -> str:
    parts = []
    for one in error.errors()[:5]:
        place = ".".join(str(step) for step in one["loc"] if step not in ("body", "query", "path"))
        parts.append(f"{place or 'body'}: {one['msg']}")
    return "; ".join(parts)
