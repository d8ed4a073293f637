"""Add keys where rows lie far from those there are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import validation
from dkvb.bottleneck.keys import Keys, first_of_equals
from dkvb.bottleneck.rows import as_tensor
from dkvb.kernels import kmeans
from dkvb.kernels.hashing import content_hash

MOST_ROWS = 1 << 13
PASSES = 3  # of Lloyd's algorithm


def grow(keys: Keys, X: Any, selected: Tensor, n_new: int) -> Keys:
    """Return the keys with at most `n_new` more per codebook, the means of groups of rows X (n, m).

    They take the places of keys that never were selected (C, K), duplicates first, and are
    appended where a codebook has no such place left; every selected key stays where it is. Spread
    and novelty still compare with the rows that the first keys were fitted to.
    """
    X = as_tensor(validation.rows(X, width=keys.width)).to(keys.device)
    chosen = X[torch.argsort(content_hash(X), stable=True)[:MOST_ROWS]]  # whatever their order
    heads = keys.heads(chosen)  # (n, C, d)
    size = float(heads.square().mean().sqrt())
    unit = 2.0 ** math.floor(math.log2(size)) if size > 0 else 1.0  # keeps squares in float32
    fresh = _means((heads / unit).float(), n_new) * unit  # (C, new, d)

    # Free places first, the best to give up first; then places behind the last.
    order = selected.long() * 2 + (keys.first_of_equals & ~selected).long()
    place = torch.argsort(order, dim=1, stable=True)[:, : fresh.shape[1]]  # (C, ≤ new)
    place = pad(place, (0, fresh.shape[1] - place.shape[1]))
    number = torch.arange(fresh.shape[1], device=keys.device).expand_as(place)
    free = (~selected).sum(dim=1, keepdim=True)  # (C, 1)
    place = torch.where(number < free, place, keys.n_pairs + number - free)
    n_pairs = max(keys.n_pairs, int(place.max()) + 1)
    # A codebook that needs fewer places than another is filled with copies of its first key,
    # which are never selected.
    filler = keys.keys[:, :1].expand(-1, n_pairs - keys.n_pairs, -1)
    grown = torch.cat([keys.keys, filler], dim=1)
    grown = grown.scatter(1, place[:, :, None].expand_as(fresh), fresh)
    report = replace(keys.report, distinct=float(first_of_equals(grown).double().mean()))
    generation = keys.settings.get("generation", 0) + 1
    settings = {**keys.settings, "generation": generation}
    return replace(keys, keys=grown.contiguous(), report=report, settings=settings)


def _means(points: Tensor, most: int) -> Tensor:
    """Return at most so many means (C, g, d) of points (n, C, d), by Lloyd's algorithm."""
    found = points[:most].transpose(0, 1).contiguous()
    for _ in range(PASSES if len(points) > most else 0):
        _, counts, sums, _ = kmeans.assign_sums(points, found)
        mean = (sums / counts.clamp(min=1)[:, :, None]).float()
        found = torch.where((counts > 0)[:, :, None], mean, found)
    return found
