"""Rows that others have embedded: the ConvMixer embeddings published with SDMLP."""

from __future__ import annotations

from pathlib import Path

import torch

from dkvb.embedding.encoder import CallableEncoder

_WIDTH = 256


def build(
    name: str,
    *,
    weights: str | Path | None,
    layer: str,
    pooling: str,
    device: torch.device | str,
    precision: str,
) -> CallableEncoder:
    """An encoder that passes prepared rows through."""
    if weights is not None:
        raise ValueError(f"weights: expected none for {name}, which reads prepared rows")
    return CallableEncoder(
        lambda rows: torch.stack(list(rows)),  # (n, 256)
        name=name,
        dimension=_WIDTH,
        takes="vector",
        fingerprint="rows as they are",
        transform=torch.as_tensor,
    )
