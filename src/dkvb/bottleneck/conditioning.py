"""From embeddings to rows that suit L2 distances: fitted without labels, then frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from dkvb._support.validation import one_of
from dkvb.bottleneck.heads import Conditioning

KINDS = ("auto", "centre", "normalised", "half-whitened", "whitened")
FLOOR = 0.1  # of the mean variance, added before whitening so that small axes are not blown up
# The variance of p axes fitted to n rows is uncertain by p/n: whitening adds this many times more.
SHRINKAGE = 5.0


def fit_conditioning(
    rows: Callable[[], Iterator[Tensor]], kind: str, n_components: int | None
) -> Conditioning:
    """A conditioning from unlabelled rows, as often as needed in batches (r, m) float32.

    `"centre"` changes no distance. `"normalised"`, `"half-whitened"` and `"whitened"` take the
    square root of embeddings that are never negative (as after a ReLU), scale each row to unit
    length and centre them. The latter two keep the first `n_components` principal axes, divided by
    the fourth or the square root of their variance. Whitening does less where there are few rows
    per axis, whose variances are uncertain. `"auto"` is `"half-whitened"` for embeddings that are
    never negative, and `"normalised"` for others.
    """
    one_of("conditioning", kind, KINDS)
    if kind == "centre":
        return Conditioning(_mean(rows).float())
    positive = not any(bool((x < 0).any()) for x in rows())
    width = next(rows()).shape[1]
    bare = Conditioning(torch.zeros(width), None, 0.5 if positive else 1.0, normalise=True)
    bare = bare.to(next(rows()).device)
    centre = _mean(lambda: (bare(x) for x in rows())).float()
    centred = Conditioning(centre, None, bare.power, normalise=True)
    if kind == "normalised" or (kind == "auto" and not positive):
        return centred
    covariance = torch.zeros((width, width), dtype=torch.float64, device=centre.device)
    count = 0
    for x in rows():
        z = centred(x)
        covariance += z.T @ z
        count += len(z)
    variance, axes = torch.linalg.eigh(covariance / count)
    kept = min(width, n_components or width, max(1, count - 1))
    variance, axes = variance.flip(0)[:kept].clamp(min=0), axes.flip(1)[:, :kept]
    exponent = -0.5 if kind == "whitened" else -0.25
    mean, floor = variance.mean(), FLOOR
    if kind == "whitened":
        floor = max(FLOOR, SHRINKAGE * kept / count)
    scale = (variance + floor * mean) ** exponent if bool(mean > 0) else torch.ones_like(variance)
    return Conditioning(centre, (axes * scale).float(), bare.power, normalise=True)


def _mean(rows: Callable[[], Iterator[Tensor]]) -> Tensor:
    total, count = None, 0
    for x in rows():
        part = x.double().sum(dim=0)
        total = part if total is None else total + part
        count += len(x)
    assert total is not None
    return total / count
