"""Pillow, which an extra brings."""

from __future__ import annotations

from typing import Any

from dkvb._support.optional import require


def pillow(purpose: str) -> Any:
    """The module `PIL.Image`, which the extra `images` brings."""
    return require("PIL.Image", "images", purpose)
