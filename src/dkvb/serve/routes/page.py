"""The page at `/`: files of the package, read once; no path of a request is opened."""

from __future__ import annotations

import mimetypes
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from fastapi.responses import Response

from dkvb.serve import shapes
from dkvb.serve.problems import Problem

router = APIRouter(tags=["page"])
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".webmanifest": "application/json"}


def _read(folder: Traversable, prefix: str = "") -> dict[str, tuple[bytes, str]]:
    """The content and the media type of every file below a folder, by name."""
    found: dict[str, tuple[bytes, str]] = {}
    for one in folder.iterdir():
        name = f"{prefix}{one.name}"
        if one.is_dir():
            found |= _read(one, f"{name}/")
        elif not one.name.endswith((".py", ".pyc")):
            suffix = "." + one.name.rpartition(".")[2]
            kind = _TYPES.get(suffix) or mimetypes.guess_type(one.name)[0] or "text/plain"
            found[name] = one.read_bytes(), kind
    return found


_FILES = _read(files("dkvb.serve").joinpath("page"))


@router.get("/", responses={200: {"content": {"text/html": {}}}, **shapes.problems(404)})
async def page() -> Response:
    """Return the page."""
    return _file("index.html")


@router.get("/page/{name:path}", responses={200: {"content": {"*/*": {}}}, **shapes.problems(404)})
async def page_file(name: str) -> Response:
    """Return a file of the page."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in _FILES:
        raise Problem(404, f"expected a file of the page; got {name[:60]!r}; begin at /")
    content, kind = _FILES[name]
    return Response(content, media_type=kind)
