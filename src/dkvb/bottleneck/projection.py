"""From conditioned rows to the heads of C codebooks (section 2, step 1 of the paper)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from dkvb._support.validation import one_of
from dkvb.bottleneck.heads import Projection

MANY = 1 << 20  # random numbers that several threads draw
MOST_THREADS = 4
SKIPPED_AT_ONCE = 1 << 16  # 512 kB
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
        normal = _normal(n_codebooks * width * key_dim, seed).view(n_codebooks, width, key_dim)
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


def _normal(count: int, seed: int) -> Tensor:
    """`torch.randn(count)` in float64, the same numbers, drawn by several threads if they are many.

    For each number `torch.randn` takes one from the generator, as `uniform_` does, and makes normal
    ones of 16 at a time. Taking numbers is fast; the logarithms and cosines are not.
    """
    normal = torch.empty(count, dtype=torch.float64)
    threads = min(MOST_THREADS, torch.get_num_threads()) if count >= MANY and count % 16 == 0 else 1
    size = -(-count // (16 * threads)) * 16

    def draw(part: Tensor, before: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        skipped = torch.empty(min(before, SKIPPED_AT_ONCE), dtype=torch.float64)
        for first in range(0, before, SKIPPED_AT_ONCE):
            skipped[: before - first].uniform_(generator=generator)
        part.normal_(generator=generator)

    parts = normal.split(size)
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(draw, parts, range(0, count, size)))
    return normal
