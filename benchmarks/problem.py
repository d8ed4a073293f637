"""What is measured: sizes, made-up embeddings, and keys drawn from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dkvb.bottleneck.heads import Conditioning
from dkvb.bottleneck.keys import KeyReport, Keys
from dkvb.bottleneck.projection import make_projection

LEARNING_RATE, SMOOTHING = 0.3, 0.1  # the paper's
DECAY, EXPIRY_SHARE = 0.95, 0.1  # of key initialisation, the paper's


@dataclass(frozen=True)
class Size:
    """Everything that decides how much work there is."""

    name: str
    n_codebooks: int
    n_pairs: int
    key_dim: int = 14
    width: int = 2048  # of embeddings
    n_classes: int = 10
    batch: int = 256
    rows: int = 10_000  # to learn from
    epochs: int = 20
    key_rows: int = 5_120  # to initialise keys from, one in ten of which is held out
    key_epochs: int = 10

    @property
    def steps(self) -> int:
        return self.epochs * -(-self.rows // self.batch)


PAPER = Size("paper", n_codebooks=256, n_pairs=4096)
SMALL = Size("64x1024", n_codebooks=64, n_pairs=1024)
TINY = Size(
    "tiny", 4, 32, key_dim=5, width=24, batch=16, rows=100, epochs=2, key_rows=100, key_epochs=2
)
SIZES = {size.name: size for size in (PAPER, SMALL, TINY)}


@dataclass(frozen=True, eq=False)
class Problem:
    """Embeddings with labels, and keys for them."""

    size: Size
    x: Tensor  # (rows, m) float32
    y: Tensor  # (rows,) int64
    keys: Keys


def embeddings(n: int, width: int, seed: int = 0) -> Tensor:
    """Rows (n, width) that look like a network's: a few directions carry most, none is negative."""
    inner = min(64, width)
    mixing = np.random.default_rng(0).standard_normal((inner, width), dtype=np.float32)
    rng = np.random.default_rng(seed + 1)
    z = rng.standard_normal((n, inner), dtype=np.float32) @ (mixing / inner**0.5)
    z += 0.3 * rng.standard_normal((n, width), dtype=np.float32)
    return torch.from_numpy(np.maximum(z, 0))


def make_problem(size: Size) -> Problem:
    """The same problem for everyone who asks for this size."""
    x = embeddings(size.rows, size.width)
    y = torch.randint(size.n_classes, (size.rows,), generator=torch.Generator().manual_seed(0))
    return Problem(size, x, y, sampled_keys(size))


def sampled_keys(size: Size, device: torch.device | str = "cpu") -> Keys:
    """Keys that are heads of random rows, drawn quickly: fitting them is measured elsewhere."""
    x = embeddings(size.n_pairs, size.width, seed=1)
    conditioning = Conditioning(x.mean(dim=0))
    projection = make_projection(
        "gaussian", size.width, n_codebooks=size.n_codebooks, key_dim=size.key_dim, seed=0
    )
    keys = torch.empty(size.n_codebooks, size.n_pairs, size.key_dim)
    rows = conditioning(x)
    for book in range(size.n_codebooks):  # one by one: together they would fill the memory
        keys[book] = projection(rows, slice(book, book + 1))[:, 0].float()
    unknown = KeyReport(rows=0, quantization_error=0.0, relative_error=0.0, distinct=1.0, used=1.0)
    quantization_error = torch.ones(size.n_codebooks)
    return Keys(conditioning, projection, keys, quantization_error, torch.ones(1), unknown).to(
        device
    )


def doubled(size: Size, what: str) -> Size:
    """The same size with one number twice as large."""
    return replace(size, **{what: 2 * getattr(size, what)})
