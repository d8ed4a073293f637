"""Embeddings of images and texts: frozen encoders, data sets, and a cache of what was embedded.

This package does not depend on the bottleneck. Any classifier takes the embeddings it returns.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dkvb._support.optional import require_torch

if TYPE_CHECKING:
    from dkvb._support.arrow import EmbeddingTable
    from dkvb._support.optional import MissingPackageError
    from dkvb.embedding.arrow import read_table
    from dkvb.embedding.cache.run import Embeddings, UnreadableItemsError, embed
    from dkvb.embedding.cache.store import Cache
    from dkvb.embedding.datasets import Dataset, load_dataset
    from dkvb.embedding.encoders.encoder import CallableEncoder, FrozenEncoder
    from dkvb.embedding.encoders.registry import absolute_name, load_encoder
    from dkvb.embedding.encoders.settings import encoder_fingerprint
    from dkvb.embedding.encoders.transforms import ImageTransform, PixelNoise
    from dkvb.embedding.transformer import Encoder

__all__ = [
    "Cache",
    "CallableEncoder",
    "Dataset",
    "EmbeddingTable",
    "Embeddings",
    "Encoder",
    "FrozenEncoder",
    "ImageTransform",
    "MissingPackageError",
    "PixelNoise",
    "UnreadableItemsError",
    "absolute_name",
    "embed",
    "encoder_fingerprint",
    "load_dataset",
    "load_encoder",
    "read_table",
]

# Encoders need torch, and files of embeddings do not: all is imported on first use.
_HOMES = {
    "Cache": "dkvb.embedding.cache.store",
    "EmbeddingTable": "dkvb._support.arrow",
    "Encoder": "dkvb.embedding.transformer",
    "MissingPackageError": "dkvb._support.optional",
    "read_table": "dkvb.embedding.arrow",
    **dict.fromkeys(("Dataset", "load_dataset"), "dkvb.embedding.datasets"),
    **dict.fromkeys(("Embeddings", "UnreadableItemsError", "embed"), "dkvb.embedding.cache.run"),
    **dict.fromkeys(("CallableEncoder", "FrozenEncoder"), "dkvb.embedding.encoders.encoder"),
    "encoder_fingerprint": "dkvb.embedding.encoders.settings",
    **dict.fromkeys(("absolute_name", "load_encoder"), "dkvb.embedding.encoders.registry"),
    **dict.fromkeys(("ImageTransform", "PixelNoise"), "dkvb.embedding.encoders.transforms"),
}
_NEED_TORCH = (
    "dkvb.embedding.cache.run",
    "dkvb.embedding.encoders.encoder",
    "dkvb.embedding.encoders.transforms",
    "dkvb.embedding.transformer",
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name] in _NEED_TORCH:
        require_torch(f"dkvb.embedding.{name}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
