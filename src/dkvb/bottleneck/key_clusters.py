"""Clusters of keys: keys of a codebook that lie together.

A few examples leave counts at a few keys, and say little of the keys beside them; of the clusters
around they say more. Rule `counts` borrows from there (`rules.counts.posterior`). Each codebook is
partitioned into clusters several times, since keys at the edge of a cluster of one partition lie
inside one of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from dkvb.kernels import kmeans

PASSES = 3  # of Lloyd's algorithm
PARTITIONS = 2  # of each codebook into small clusters, and as many into large ones


@dataclass(frozen=True, eq=False)
class KeyClusters:
    """The cluster of each key in each of the partitions, those into small clusters first."""

    of_key: Tensor  # (R, C, K) int16
    sizes: Tensor  # (R, C, G) int32, keys of each cluster: of all keys, pruned ones included

    @property
    def n_partitions(self) -> int:
        return self.of_key.shape[0]

    @property
    def n_clusters(self) -> int:
        """The number of clusters in a partition of a codebook: G."""
        return self.sizes.shape[2]

    @cached_property
    def shares(self) -> Tensor:
        """What each key has of a row counted in its cluster, by cluster (R·C·G,) float64."""
        return 1 / self.sizes.double().clamp(min=1).flatten()

    @cached_property
    def cells(self) -> Tensor:
        """The number of the cluster of each pair (R, C·K) int32, among those of all codebooks and
        partitions."""
        R, C, G = self.sizes.shape
        first = torch.arange(R * C, dtype=torch.int32, device=self.sizes.device) * G
        return (self.of_key + first.view(R, C, 1)).flatten(1)

    def of_pairs(self, place: Tensor) -> KeyClusters:
        """The clusters of some keys, those at place (C, K'); sizes stay those of all."""
        return replace(self, of_key=self.of_key.gather(2, place.expand(self.n_partitions, -1, -1)))

    def to(self, device: torch.device | str) -> KeyClusters:
        """The same on another device."""
        return KeyClusters(self.of_key.to(device), self.sizes.to(device))


def find_key_clusters(keys: Tensor) -> KeyClusters:
    """Clusters of keys (C, K, d): in each codebook about √K small ones, and ∛K large ones."""
    C, K, _ = keys.shape
    points = keys.transpose(0, 1).contiguous()  # (K, C, d)
    small, large = max(1, round(K**0.5)), max(1, round(K ** (1 / 3)))
    partitions = []
    for number in range(2 * PARTITIONS):
        size = small if number < PARTITIONS else large
        # Each partition starts from other keys.
        centres = means(points.roll(-(number % PARTITIONS) * size, dims=0), size)  # (C, g, d)
        partitions.append(kmeans.assign(points, centres).long().T)  # (C, K)
    of_key = torch.stack(partitions)  # (R, C, K)
    sizes = torch.zeros((2 * PARTITIONS, C, small), dtype=torch.int32, device=keys.device)
    sizes.scatter_add_(2, of_key, torch.ones_like(of_key, dtype=torch.int32))
    return KeyClusters(of_key.to(torch.int16), sizes)


def means(points: Tensor, most: int) -> Tensor:
    """At most so many means (C, g, d) of points (n, C, d), by Lloyd's algorithm from the first."""
    found = points[:most].transpose(0, 1).contiguous()
    for _ in range(PASSES if len(points) > most else 0):
        _, counts, sums, _ = kmeans.assign_sums(points, found)
        mean = (sums / counts.clamp(min=1)[:, :, None]).float()
        found = torch.where((counts > 0)[:, :, None], mean, found)
    return found
