"""Nearest keys, the obvious way.

`decide` says what the canonical code is: float64, differences before squares, and sums over a fixed
binary tree of single additions, so that every distance is the same number on any device and in any
batch. `search` is the plain matrix-product version that the fast kernels are compared with.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

UNIT_ROUNDOFF = 2.0**-53


def tree_sum(terms: Tensor, dim: int) -> Tensor:
    """Sum over `dim` by halving: the order of additions depends on the length alone."""
    terms = terms.movedim(dim, 0)
    while terms.shape[0] > 1:
        half = (terms.shape[0] + 1) // 2
        upper = terms[half:]
        upper = pad(upper, (0, 0) * (upper.ndim - 1) + (0, half - upper.shape[0]))
        terms = terms[:half] + upper
    return terms[0]


def squared_distances(heads: Tensor, keys: Tensor) -> Tensor:
    """‖h − k‖² for heads (r, d) and their keys (r, K, d): (r, K) float64."""
    difference = heads.double()[:, None, :] - keys.double()
    return tree_sum(difference * difference, dim=-1)


def decide(heads: Tensor, keys: Tensor, allowed: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` nearest allowed keys, ties to the lowest index; the squared distance is infinite
    where fewer than `top` are allowed.

    heads (r, d) float64, keys (r, K, d), allowed (r, K) → codes, squared distances (r, top).
    """
    squared = squared_distances(heads, keys).masked_fill(~allowed, torch.inf)
    if top == 1:  # much faster than sorting
        lowest = squared.amin(dim=1, keepdim=True)
        first = (squared == lowest).to(torch.uint8).argmax(dim=1, keepdim=True)
        return first.to(torch.int32), lowest
    nearest, order = torch.sort(squared, dim=1, stable=True)
    return order[:, :top].to(torch.int32), nearest[:, :top]


def prepare(keys: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Nothing to prepare: keys (C, K, d) and bias (C, K) as float64."""
    return keys.double(), bias.double()


def search(
    heads: Tensor, prepared: tuple[Tensor, Tensor], tolerance: Tensor, top: int = 1
) -> tuple[Tensor, Tensor]:
    """The `top` lowest scores ½‖k‖² − h·k: codes (n, C, top), and where that is unsure (n, C).

    Unsure means that two scores next to each other, up to the one after the last returned, differ
    by no more than `tolerance` (n, C).
    """
    keys, bias = prepared
    codes, unsure = [], []
    for book in range(keys.shape[0]):
        scores = bias[book] - heads[:, book].double() @ keys[book].T  # (n, K)
        lowest, order = torch.sort(scores, dim=1, stable=True)
        gaps = lowest[:, 1 : top + 1] - lowest[:, :top][:, : lowest.shape[1] - 1]
        # Written so that NaN (inf − inf among forbidden keys) counts as unsure.
        codes.append(order[:, :top].to(torch.int32))
        unsure.append(~(gaps > tolerance[:, book, None]).all(dim=1))
    return torch.stack(codes, 1), torch.stack(unsure, 1)
