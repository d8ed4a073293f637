"""Regions: keys of a codebook that lie together.

A few examples leave marks at a few keys, and say little of the keys beside them; of the regions
around they say more. Values learned by counting borrow from there (`rules.counts.posterior`).
Each codebook is cut into regions several times, since keys at the edge of a region of one cut lie
inside one of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from dkvb.kernels import kmeans as accumulate

PASSES = 3  # of Lloyd's algorithm
CUTS = 2  # of each codebook into small regions, and as many into large ones


@dataclass(frozen=True, eq=False)
class Regions:
    """The region of each key in each of the cuts, those into small regions first."""

    of_key: Tensor  # (R, C, K) int16
    sizes: Tensor  # (R, C, G) int32, keys of each region: of all keys, pruned ones included

    @property
    def n_cuts(self) -> int:
        return self.of_key.shape[0]

    @property
    def n_regions(self) -> int:
        """Room for regions in a cut of a codebook: G."""
        return self.sizes.shape[2]

    @cached_property
    def shares(self) -> Tensor:
        """What each key has of a row counted in its region, by region (R·C·G,) float64."""
        return 1 / self.sizes.double().clamp(min=1).flatten()

    def of_pairs(self, place: Tensor) -> Regions:
        """The regions of some keys, those at place (C, K'); sizes stay those of all."""
        return replace(self, of_key=self.of_key.gather(2, place.expand(self.n_cuts, -1, -1)))

    def to(self, device: torch.device | str) -> Regions:
        """The same on another device."""
        return Regions(self.of_key.to(device), self.sizes.to(device))


def find_regions(keys: Tensor) -> Regions:
    """Regions of the keys (C, K, d): in each codebook about √K small ones, and ∛K large ones."""
    C, K, _ = keys.shape
    points = keys.transpose(0, 1).contiguous()  # (K, C, d)
    small, large = max(1, round(K**0.5)), max(1, round(K ** (1 / 3)))
    cuts = []
    for number in range(2 * CUTS):
        size = small if number < CUTS else large
        # Each cut starts from other keys.
        centres = means(points.roll(-(number % CUTS) * size, dims=0), size)  # (C, g, d)
        cuts.append(accumulate.assign(points, centres).long().T)  # (C, K)
    of_key = torch.stack(cuts)  # (R, C, K)
    sizes = torch.zeros((2 * CUTS, C, small), dtype=torch.int32, device=keys.device)
    sizes.scatter_add_(2, of_key, torch.ones_like(of_key, dtype=torch.int32))
    return Regions(of_key.to(torch.int16), sizes)


def means(points: Tensor, most: int) -> Tensor:
    """At most so many means (C, g, d) of points (n, C, d), by Lloyd's algorithm from the first."""
    found = points[:most].transpose(0, 1).contiguous()
    for _ in range(PASSES if len(points) > most else 0):
        _, counts, sums, _ = accumulate.assign_sums(points, found)
        mean = (sums / counts.clamp(min=1)[:, :, None]).float()
        found = torch.where((counts > 0)[:, :, None], mean, found)
    return found
