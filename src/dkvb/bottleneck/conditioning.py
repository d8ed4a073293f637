"""From embeddings to rows that suit L2 distances: fitted without labels, then frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb._support.validation import one_of
from dkvb.kernels.nearest import tree_sum

KINDS = ("centre", "half-whitened", "whitened")
FLOOR = 0.1  # of the mean variance, added before whitening so that small axes are not blown up


@dataclass(frozen=True, eq=False)
class Conditioning:
    """Signed power, L2 normalisation, centring, and a linear map, each optional but the centring.

    Centring changes no distance; without it, float32 distances are wrong where the data's offset
    dwarfs its spread.
    """

    centre: Tensor  # (m,) float32
    components: Tensor | None = None  # (m, p) float32: principal axes, scaled where whitened
    power: float = 1.0
    normalise: bool = False

    @property
    def width(self) -> int:
        return self.centre.shape[0]

    @property
    def output_width(self) -> int:
        return self.width if self.components is None else self.components.shape[1]

    @cached_property
    def _components64(self) -> Tensor | None:
        return None if self.components is None else self.components.double()

    @cached_property
    def _reach(self) -> float:
        return 1.0 if self.components is None else float(self.components.norm())

    def __call__(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) float32 → conditioned rows (n, p) float64."""
        z = self._elementwise(x)
        if self.normalise:
            z = z / _nonzero(z.norm(dim=1, keepdim=True))
        z = z - self.centre
        return z if self._components64 is None else z @ self._components64

    def exact(self, x: Tensor) -> Tensor:
        """The same by sums in a fixed order: equal in any batch and on any device."""
        z = self._elementwise(x)
        if self.normalise:
            z = z / _nonzero(tree_sum(z * z, dim=1).sqrt()[:, None])
        z = z - self.centre
        if self._components64 is None:
            return z
        return torch.cat([tree_sum(row[:, None] * self._components64, 0)[None] for row in z])

    def rounding(self, x: Tensor) -> Tensor:
        """How far, in norm, a conditioned row may lie from its exact one (n,) float64."""
        unit = 2.0**-53 * (self.width + 4)
        start = unit if self.normalise else 0.0
        moved = torch.full((len(x),), start, dtype=torch.float64, device=x.device)
        if self.components is None:
            return moved
        z = self._elementwise(x)
        if self.normalise:
            z = z / _nonzero(z.norm(dim=1, keepdim=True))
        bound: Tensor = (moved + 2 * unit * (z - self.centre).norm(dim=1)) * self._reach
        return bound

    def _elementwise(self, x: Tensor) -> Tensor:
        z = x.double()
        if self.power == 0.5:
            return z.sign() * z.abs().sqrt()
        return z if self.power == 1.0 else z.sign() * z.abs() ** self.power

    def to(self, device: torch.device | str) -> Conditioning:
        moved = None if self.components is None else self.components.to(device)
        return Conditioning(self.centre.to(device), moved, self.power, self.normalise)


def _nonzero(norms: Tensor) -> Tensor:
    return torch.where(norms > 0, norms, 1.0)


def fit_conditioning(
    rows: Callable[[], Iterator[Tensor]], kind: str, n_components: int | None
) -> Conditioning:
    """A conditioning from unlabelled rows, as often as needed in batches (r, m) float32.

    `"centre"` changes no distance. `"half-whitened"` and `"whitened"` take the square root of
    embeddings that are never negative (as after a ReLU), scale each row to unit length, and keep
    the first `n_components` principal axes, divided by the fourth or the square root of their
    variance. Of several processes each gives its own rows; all get the same conditioning.
    """
    one_of("conditioning", kind, KINDS)
    if kind == "centre":
        return Conditioning(_mean(rows).float())
    positive = process_group.all_reduce_int(sum(int((x < 0).sum()) for x in rows())) == 0
    width = next(rows()).shape[1]
    bare = Conditioning(torch.zeros(width), None, 0.5 if positive else 1.0, normalise=True)
    bare = bare.to(next(rows()).device)
    centre = _mean(lambda: (bare(x) for x in rows())).float()
    centred = Conditioning(centre, None, bare.power, normalise=True)
    covariance = torch.zeros((width, width), dtype=torch.float64, device=centre.device)
    count = 0
    for x in rows():
        z = centred(x)
        covariance += z.T @ z
        count += len(z)
    count = process_group.all_reduce_int(count)
    variance, axes = torch.linalg.eigh(process_group.all_reduce(covariance) / count)
    variance, axes = (process_group.broadcast(t.contiguous()) for t in (variance, axes))
    kept = min(width, n_components or width, max(1, count - 1))
    variance, axes = variance.flip(0)[:kept].clamp(min=0), axes.flip(1)[:, :kept]
    exponent = -0.5 if kind == "whitened" else -0.25
    mean = variance.mean()
    scale = (variance + FLOOR * mean) ** exponent if bool(mean > 0) else torch.ones_like(variance)
    return Conditioning(centre, (axes * scale).float(), bare.power, normalise=True)


def _mean(rows: Callable[[], Iterator[Tensor]]) -> Tensor:
    total, count = None, 0
    for x in rows():
        part = x.double().sum(dim=0)
        total = part if total is None else total + part
        count += len(x)
    assert total is not None
    return process_group.all_reduce(total) / process_group.all_reduce_int(count)
