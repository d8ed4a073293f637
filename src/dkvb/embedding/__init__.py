"""From images and text to embeddings: encoders, data sets, and a cache in which nothing is twice.

A side wing: it knows nothing of the bottleneck, and gives rows that any classifier takes.
"""

from dkvb._support.optional import MissingPackageError
from dkvb.embedding.cache.run import Embeddings, UnreadableItemsError, embed
from dkvb.embedding.cache.store import Cache
from dkvb.embedding.datasets import Dataset, load_dataset
from dkvb.embedding.encoders.encoder import CallableEncoder, Encoder, encoder_fingerprint
from dkvb.embedding.encoders.registry import lasting_name, load_encoder
from dkvb.embedding.encoders.transforms import ImageTransform, PixelNoise

__all__ = [
    "Cache",
    "CallableEncoder",
    "Dataset",
    "Embeddings",
    "Encoder",
    "ImageTransform",
    "MissingPackageError",
    "PixelNoise",
    "UnreadableItemsError",
    "embed",
    "encoder_fingerprint",
    "lasting_name",
    "load_dataset",
    "load_encoder",
]
