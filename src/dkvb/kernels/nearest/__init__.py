"""Which key lies nearest to each head.

The search runs in float32 (on the CPU and on CUDA) with scores ½‖k‖² − h·k, which order keys as L2
distances do, and says for which heads rounding could have changed the answer. Whoever calls decides
those few again with `decide`, in float64, so that codes are canonical.

`decide` says what the canonical code is: float64, differences before squares, and sums over a fixed
binary tree of single additions, so that every distance is the same number on any device and in any
batch. `oracle`, `cpu` and `triton` are three versions of the search.

On the CPU heads are computed in float32, too, with a bound on their error (`cpu.search_rows`).
Those of undecided codes are computed again in float64 (`rescore.project_pairs`). Where distances
are asked for, all heads are in float64 (`rescore.search_with_distances`). A GPU for data centres
multiplies as quickly in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb.kernels import choose
from dkvb.kernels.nearest.bounds import DOUBLE_ROUNDOFF, OVERFLOW, tolerance_of

__all__ = [
    "KeyIndex",
    "build_index",
    "decide",
    "prepare_matrices",
    "refine",
    "search",
    "squared_distances",
    "tree_sum",
    "version",
]

# Matrices whose norms lie outside of these could underflow or overflow in float32.
SMALLEST, LARGEST = 2.0**-60, 2.0**60


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """Keys laid out for one backend's search."""

    backend: str
    scale: Tensor  # (C,) float64, powers of two that bring the keys of each codebook near 1
    reach: Tensor  # (C,) float64, the largest norm of a scaled key
    bias: Tensor  # (C, K) float64, ½‖k‖² of scaled keys, infinite where a key must not be chosen
    key_dim: int
    layout: Any


def build_index(
    keys: Tensor, allowed: Tensor | None = None, backend: str | None = None
) -> KeyIndex:
    """Lay out keys (C, K, d) for searching those that are `allowed` (C, K)."""
    backend = choose(keys.device, backend)
    norms = keys.double().norm(dim=2)
    if allowed is not None:
        norms = norms.masked_fill(~allowed, 0.0)
    largest = norms.amax(dim=1)
    # Powers of two scale exactly, and keep float32 squares away from overflow and underflow.
    scale = torch.where(largest > 0, torch.exp2(-torch.floor(torch.log2(largest))), 1.0)
    scaled = keys.double() * scale[:, None, None]
    bias = 0.5 * (scaled * scaled).sum(dim=2)
    if allowed is not None:
        bias = bias.masked_fill(~allowed, torch.inf)
    layout = version(backend).prepare(scaled, bias)
    return KeyIndex(backend, scale, largest * scale, bias, keys.shape[2], layout)


def prepare_matrices(matrices: Tensor, norms: Tensor) -> Tensor | None:
    """Lay out matrices (C, p, d), of norms (C,), for `cpu.search_rows`; None if that cannot run."""
    usable = (norms >= SMALLEST) & (norms <= LARGEST)
    if choose(matrices.device) != "cpu" or not bool(usable.all()):
        return None
    panels: Tensor = version("cpu").prepare_matrices(matrices)
    return panels


def search(
    index: KeyIndex, heads: Tensor, top: int = 1, error: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """The `top` nearest keys of heads (n, C, d) float64: codes (n, C, top), unsure (n, C) bool.

    The canonical heads may lie `error` (n, C) away from these.
    """
    module = version(index.backend)
    if index.backend == "triton":
        scaled, norm = module.scaled(heads, index.scale)
    else:
        scaled = heads * index.scale[:, None]  # (n, C, d)
        norm = scaled.norm(dim=2)  # (n, C)
    tolerance = tolerance_of(
        index.key_dim, norm, index.reach, index.scale * error, module.UNIT_ROUNDOFF
    )
    dtype = torch.float64 if index.backend == "oracle" else torch.float32
    codes, unsure = module.search(scaled.to(dtype), index.layout, tolerance.to(dtype), top)
    return codes, unsure | (norm * index.reach > OVERFLOW)


def tree_sum(terms: Tensor, dim: int) -> Tensor:
    """Sum over `dim` by halving: the order of additions depends on the length alone."""
    terms = terms.movedim(dim, 0)
    while terms.shape[0] > 1:
        half = (terms.shape[0] + 1) // 2
        upper = terms[half:]
        if len(upper) < half:
            upper = pad(upper, (0, 0) * (upper.ndim - 1) + (0, 1))
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


def refine(
    index: KeyIndex, keys: Tensor, heads: Tensor, books: Tensor, error: Tensor, elements: int
) -> tuple[Tensor, Tensor]:
    """The nearest key in float64, for one codebook a row: codes (r,) int32, and where `decide` must
    say the same (r,). heads (r, d) float64, books (r,), error (r,); all keys (C, K, d). No more
    than about so many `elements` are made at a time."""
    scale, reach = index.scale[books], index.reach[books]
    norm = heads.norm(dim=1) * scale
    slack = tolerance_of(index.key_dim, norm, reach, scale * error, DOUBLE_ROUNDOFF)
    if index.backend == "cpu":
        scaled = heads * scale[:, None]
        codes, lowest = version("rescore").refine(scaled, index.layout, index.bias, books)
    elif index.backend == "triton":
        scaled = heads * scale[:, None] ** 2  # h·k of scaled numbers, with both scales on the head
        codes, lowest = version("triton").lowest_two(keys, scaled, books, index.bias)
    else:
        codes, lowest = _refine(index, keys, heads, books, elements)
    sure = (lowest[:, -1] - lowest[:, 0] > slack) & lowest[:, 0].isfinite()
    return codes, sure | (keys.shape[1] == 1)


def _refine(
    index: KeyIndex, keys: Tensor, heads: Tensor, books: Tensor, elements: int
) -> tuple[Tensor, Tensor]:
    """The lowest score (r,) in float64 and, if there are two keys, the lowest two (r, 2)."""
    scale = index.scale[books]
    lowest = heads.new_empty((len(heads), min(2, keys.shape[1])))
    codes = torch.empty(len(heads), dtype=torch.int32, device=heads.device)
    # h·k of scaled numbers, with both scales on the head, which is small.
    for rows, products in _products(keys, heads * scale[:, None] ** 2, books, elements):
        scores = index.bias[books[rows]] - products  # (s, K)
        lowest[rows], order = scores.topk(lowest.shape[1], dim=1, largest=False)
        codes[rows] = order[:, 0].to(torch.int32)
    return codes, lowest


def _products(
    keys: Tensor, heads: Tensor, books: Tensor, elements: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """h·k with every key of a row's codebook, some rows at a time: rows (s,), products (s, K)."""
    if keys.is_cuda:  # few large operations
        for rows in torch.arange(len(heads), device=keys.device).split(
            max(1, elements // keys[0].numel())
        ):
            yield rows, torch.bmm(keys[books[rows]].double(), heads[rows][:, :, None])[:, :, 0]
        return
    order = torch.argsort(books)  # codebook by codebook, so that no key is copied for each row
    present, counts = torch.unique_consecutive(books[order], return_counts=True)
    for book, own in zip(present.tolist(), order.split(counts.tolist()), strict=True):
        of_book = keys[book].double().T
        for rows in own.split(max(1, elements // keys.shape[1])):
            yield rows, heads[rows] @ of_book


@cache
def version(name: str) -> Any:
    """A version of the search, or `rescore`, which decides in float64 on the CPU."""
    return import_module(f"dkvb.kernels.nearest.{name}")
