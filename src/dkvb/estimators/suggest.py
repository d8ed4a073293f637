"""Which unlabelled inputs to label next."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CANDIDATES = 50  # for each input that is asked for


def suggest(
    probabilities: NDArray[np.float64], novelty: NDArray[np.float64], z: Tensor, n: int
) -> NDArray[np.int64]:
    """Positions of n inputs, the most useful first.

    An input is worth 1 − the margin between its two likeliest classes, plus its novelty. The worth
    falls near an input that was suggested before, and with every one of the same predicted class,
    so that suggestions differ and no class is starved.
    """
    top = np.sort(probabilities, axis=1)[:, ::-1]
    margin = top[:, 0] - top[:, 1] if top.shape[1] > 1 else np.zeros(len(top))
    worth = torch.from_numpy(1 - margin + novelty)
    predicted = torch.from_numpy(probabilities.argmax(axis=1))
    n = min(n, len(worth))
    pool = torch.argsort(worth, descending=True, stable=True)[: n * CANDIDATES]
    worth, predicted, z = worth[pool], predicted[pool], z[pool.to(z.device)]
    distance = torch.full_like(worth, torch.inf)
    times = torch.zeros(probabilities.shape[1], dtype=torch.float64)
    chosen: list[int] = []
    unit = 1.0
    for _ in range(n):
        near = (distance / unit).clamp(max=1)
        value = (worth * near / (1 + times[predicted])).index_fill(
            0, torch.tensor(chosen, dtype=torch.int64), -torch.inf
        )
        best = int(value.argmax())
        chosen.append(best)
        times[predicted[best]] += 1
        from_best = torch.cdist(z[best : best + 1], z)[0].square().double().cpu()
        if len(chosen) == 1:
            unit = float(from_best.mean()) or 1.0  # not the median: most may be copies
        distance = torch.minimum(distance, from_best)
    return pool[chosen].numpy()
