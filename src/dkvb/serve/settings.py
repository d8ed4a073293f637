"""What a service is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """What one request may take, so that it cannot starve others."""

    body_bytes: int = 64 << 20
    pixels: int = 50_000_000  # of one image: 150 MB when decoded
    rows: int = 10_000  # embeddings, images or texts
    queue: int = 256  # requests that wait; more are answered 503
    body_seconds: float = 30.0  # until the whole body has come
    seconds: float = 120.0  # until a request is answered


@dataclass(frozen=True)
class Settings:
    """The model, where to listen, and who may ask."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    workers: int = 1
    encoder: str | None = None  # of a new model; a model remembers its own
    width: int | None = None  # of embeddings, for a new model without an encoder
    allow_download: bool = False
    keep_images: bool = False
    device: str = "cpu"
    limits: Limits = field(default_factory=Limits)

    @cached_property
    def name(self) -> str:
        """What clients call the model: the name of its folder."""
        return self.model.resolve().name
