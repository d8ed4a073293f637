"""Rows that others have embedded: the ConvMixer embeddings published with SDMLP."""

from __future__ import annotations

import torch

from dkvb.embedding.encoders.encoder import CallableEncoder, EncoderSpec
from dkvb.embedding.encoders.settings import PLAIN

_WIDTH = 256


def build(spec: EncoderSpec) -> CallableEncoder:
    """An encoder that passes prepared rows through."""
    if spec.weights is not None or spec.views != PLAIN or spec.layers != ("last",):
        raise ValueError(
            f"weights, layers, views: expected none for {spec.name}, which reads prepared rows"
        )
    return CallableEncoder(
        lambda rows: torch.stack(list(rows)),  # (n, 256)
        name=spec.name,
        dimension=_WIDTH,
        takes="vector",
        fingerprint="rows as they are",
        transform=torch.as_tensor,
    )
