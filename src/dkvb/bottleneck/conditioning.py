"""From an encoder's embeddings to rows that suit L2 distances: fitted without labels, then frozen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dkvb.kernels.nearest import tree_sum


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
