"""How a kernel ridge problem is solved: chosen from its size, the memory and the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dkvb._support.memory import total_memory

EXACT_CPU_ROWS = 12_000  # a factorisation of more takes minutes on a CPU
STORED_ROWS = {"cpu": 100_000, "cuda": 400_000}  # of conjugate gradients; beyond: landmarks
RECOMPUTED_ROWS = {"cpu": 20_000, "cuda": 1_000_000}
LANDMARKS = 2048  # of the preconditioner
MOST_LANDMARKS = 16_384
SMALL = 1 << 28  # bytes that any machine has
_SHARE = 0.85  # of the memory that may be used


@dataclass(frozen=True)
class Way:
    """One of the ways to solve, and the bytes it takes."""

    name: str  # "cholesky", "stored" or "recomputed" conjugate gradients, "landmarks"
    n_bytes: int
    landmarks: int = 0


def select_way(n: int, width: int, n_classes: int, device: torch.device | str) -> Way:
    """The most exact way that n rows of this width allow; an error that names the bytes."""
    kind = torch.device(device).type
    rows = 12 * n * width  # float32, and a copy in float64 of a part
    exact = Way("cholesky", 4 * 8 * n * n + rows)
    if exact.n_bytes <= SMALL:
        return exact
    total = total_memory(device)
    most = exact.n_bytes if total is None else int(_SHARE * total)
    vectors = rows + 4 * n * (LANDMARKS * 2 + 8 * n_classes)
    stored = Way("stored", 4 * n * n + vectors, min(n, LANDMARKS))
    recomputed = Way("recomputed", vectors, min(n, LANDMARKS))
    m = min(n, MOST_LANDMARKS)
    landmarks = Way("landmarks", 3 * 8 * m * m + rows, m)
    if exact.n_bytes <= most and (kind == "cuda" or n <= EXACT_CPU_ROWS):
        return exact
    if stored.n_bytes <= most and n <= STORED_ROWS[kind]:
        return stored
    if recomputed.n_bytes <= most and n <= RECOMPUTED_ROWS[kind]:
        return recomputed
    if landmarks.n_bytes <= most:
        return landmarks
    raise MemoryError(
        f"X: expected examples that fit in memory; {n} of width {width} take "
        f"{landmarks.n_bytes:,} bytes with {m} landmarks, of {most:,} that may be used; "
        "learn fewer examples, or use a machine with more memory"
    )
