"""Which unlabelled inputs to label next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CANDIDATES = 50  # for each input that is asked for


def suggest(
    probabilities: NDArray[np.float64], novelty: NDArray[np.float64], z: NDArray[Any], n: int
) -> NDArray[np.int64]:
    """Positions of n inputs of rows z (k, p), the most useful first.

    An input is worth 1 − the margin between its two likeliest classes, plus its novelty. The worth
    falls near an input that was suggested before, and with every one of the same predicted class,
    so that suggestions differ and no class is starved.
    """
    top = np.sort(probabilities, axis=1)[:, ::-1]
    margin = top[:, 0] - top[:, 1] if top.shape[1] > 1 else np.zeros(len(top))
    worth, predicted = 1 - margin + novelty, probabilities.argmax(axis=1)
    n = min(n, len(worth))
    pool = np.argsort(-worth, kind="stable")[: n * CANDIDATES]
    worth, predicted, z = worth[pool], predicted[pool], z[pool]
    distance = np.full(len(pool), np.inf)
    times = np.zeros(probabilities.shape[1])
    chosen: list[int] = []
    unit = 1.0
    for _ in range(n):
        value = worth * np.minimum(distance / unit, 1) / (1 + times[predicted])
        value[chosen] = -np.inf
        best = int(value.argmax())
        chosen.append(best)
        times[predicted[best]] += 1
        apart = z - z[best]
        from_best = np.einsum("ij,ij->i", apart, apart)
        if len(chosen) == 1:
            unit = float(from_best.mean()) or 1.0  # not the median: most may be copies
        distance = np.minimum(distance, from_best)
    return pool[chosen]
