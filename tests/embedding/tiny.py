"""A small encoder and a small data set, for tests of what happens around encoders."""

from __future__ import annotations

import itertools
import time

import numpy as np
import torch

from dkvb.embedding import CallableEncoder
from dkvb.embedding.datasets.dataset import texts

WIDTH = 5


def encoder(
    seconds_a_batch: float = 0.0, fingerprint: str = "1", most_batches: int | None = None
) -> CallableEncoder:
    """Letters counted and projected; what stands beside a text shows, as rounding errors would.

    After `most_batches` it hangs, until somebody ends its process.
    """
    batches = itertools.count()
    matrix = torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(0))

    def function(batch):
        time.sleep(900 if next(batches) == most_batches else seconds_a_batch)
        counts = [np.bincount(np.frombuffer(t.encode(), np.uint8), minlength=256) for t in batch]
        rows = torch.from_numpy(np.stack(counts)).float().log1p() @ matrix
        return rows + 1e-3 * len(batch) + 1e-3 * rows.mean(dim=0)

    return CallableEncoder(
        function, name="tiny", dimension=WIDTH, takes="text", fingerprint=fingerprint
    )


def dataset(n: int = 100):
    """Sentences of three classes."""
    words = np.random.default_rng(0).integers(0, 1000, size=(n, 6))
    contents = [f"{i} " + " ".join(f"word{w}" for w in row) for i, row in enumerate(words)]
    return texts("sentences", contents, np.array(["a", "b", "c"])[words[:, 0] % 3])
