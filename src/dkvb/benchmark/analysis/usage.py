"""Who uses which pair: counts over codes."""

from __future__ import annotations

import torch
from torch import Tensor

from dkvb.bottleneck.values import count_usage, flat_codes


def selections(codes: Tensor, n_pairs: int) -> Tensor:
    """How often codes (n, C) select each pair: (C, K) int64.

    >>> selections(torch.tensor([[0, 2], [0, 1]]), n_pairs=3)
    tensor([[2, 0, 0],
            [0, 1, 1]])
    """
    usage = torch.zeros((codes.shape[1], n_pairs), dtype=torch.int64, device=codes.device)
    count_usage(usage, codes)
    return usage


def classes_sharing(codes: Tensor, columns: Tensor, n_pairs: int, n_classes: int) -> Tensor:
    """How many classes select each pair: (C, K) int64, of codes (n, C) with labels columns (n,).

    >>> codes, columns = torch.tensor([[0], [0], [2]]), torch.tensor([0, 1, 1])
    >>> classes_sharing(codes, columns, n_pairs=3, n_classes=2)
    tensor([[2, 0, 1]])
    """
    C = codes.shape[1]
    seen = torch.zeros(C * n_pairs * n_classes, dtype=torch.bool, device=codes.device)
    seen[(flat_codes(codes, n_pairs) * n_classes + columns[:, None]).flatten()] = True
    return seen.view(C, n_pairs, n_classes).sum(dim=2)


def histogram(counts: Tensor, edges: list[int]) -> list[int]:
    """How many of the counts lie in [edges[i], edges[i+1]), the last bin being open.

    >>> histogram(torch.tensor([0, 0, 3, 9]), [0, 1, 5])
    [2, 1, 1]
    """
    bins = torch.bucketize(counts.flatten(), torch.tensor(edges, device=counts.device), right=True)
    return torch.bincount(bins, minlength=len(edges) + 1)[1:].tolist()
