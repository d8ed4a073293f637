"""From conditioned rows to the heads of C codebooks (section 2, step 1 of the paper)."""

from __future__ import annotations

import torch

from dkvb._support.validation import one_of
from dkvb.bottleneck.heads import Projection

KINDS = ("gaussian", "partition", "identity")


def make_projection(
    kind: str, width: int, *, n_codebooks: int, key_dim: int | None, seed: int
) -> Projection:
    """A projection for rows of `width`; `key_dim` is needed for gaussian and follows otherwise.

    Gaussian matrices have columns of unit length, as in the paper's experiments.
    """
    one_of("projection", kind, KINDS)
    if kind == "gaussian":
        if key_dim is None:
            raise ValueError("key_dim: expected a whole number for projection='gaussian'; got None")
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(n_codebooks, width, key_dim, dtype=torch.float64, generator=generator)
        matrices = normal.div_(normal.norm(dim=1, keepdim=True)).float()
        return Projection(kind, n_codebooks, key_dim, width, matrices)
    if kind == "partition" and width % n_codebooks:
        raise ValueError(
            f"n_codebooks: expected a divisor of the width {width} for projection='partition'; "
            f"got {n_codebooks}; choose a divisor or projection='gaussian'"
        )
    natural = width // n_codebooks if kind == "partition" else width
    if key_dim not in (None, natural):
        raise ValueError(
            f"key_dim: expected {natural}, or None, for projection={kind!r} of width {width} into "
            f"{n_codebooks} codebooks; got {key_dim}"
        )
    return Projection(kind, n_codebooks, natural, width)
