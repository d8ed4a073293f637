"""Embeddings of images and texts: frozen encoders, data sets, and a cache of what was embedded.

This package does not depend on the bottleneck. Any classifier takes the embeddings it returns.
"""

from dkvb._support.arrow import EmbeddingTable
from dkvb._support.optional import MissingPackageError
from dkvb.embedding.arrow import read_table
from dkvb.embedding.cache.run import Embeddings, UnreadableItemsError, embed
from dkvb.embedding.cache.store import Cache
from dkvb.embedding.datasets import Dataset, load_dataset
from dkvb.embedding.encoders.encoder import (
    CallableEncoder,
    FrozenEncoder,
    encoder_fingerprint,
)
from dkvb.embedding.encoders.registry import absolute_name, load_encoder
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
