"""Counts of how often pairs are selected, and by how many classes."""

from __future__ import annotations

import torch
from torch import Tensor

from dkvb.bottleneck.values import count_usage, flat_codes


def count_selections(codes: Tensor, n_pairs: int) -> Tensor:
    """Return how often codes (n, C) select each pair: (C, K) int64.

    >>> count_selections(torch.tensor([[0, 2], [0, 1]]), n_pairs=3)
    tensor([[2, 0, 0],
            [0, 1, 1]])
    """
    usage = torch.zeros((codes.shape[1], n_pairs), dtype=torch.int64, device=codes.device)
    count_usage(usage, codes)
    return usage


def count_sharing_classes(codes: Tensor, columns: Tensor, n_pairs: int, n_classes: int) -> Tensor:
    """Return how many classes select each pair, (C, K) int64, from codes (n, C) and classes (n,).

    >>> codes, columns = torch.tensor([[0], [0], [2]]), torch.tensor([0, 1, 1])
    >>> count_sharing_classes(codes, columns, n_pairs=3, n_classes=2)
    tensor([[2, 0, 1]])
    """
    C = codes.shape[1]
    seen = torch.zeros(C * n_pairs * n_classes, dtype=torch.bool, device=codes.device)
    seen[(flat_codes(codes, n_pairs) * n_classes + columns[:, None]).flatten()] = True
    return seen.view(C, n_pairs, n_classes).sum(dim=2)


def count_in_bins(counts: Tensor, edges: list[int]) -> list[int]:
    """Return how many of the counts lie in [edges[i], edges[i+1]); the last bin is open.

    >>> count_in_bins(torch.tensor([0, 0, 3, 9]), [0, 1, 5])
    [2, 1, 1]
    """
    bins = torch.bucketize(counts.flatten(), torch.tensor(edges, device=counts.device), right=True)
    return torch.bincount(bins, minlength=len(edges) + 1)[1:].tolist()
