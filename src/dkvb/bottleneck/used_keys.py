"""Restrict predictions to keys that learning has used at least once, as in the paper's experiments.

With hundreds of codebooks almost every row has one whose nearest key was never used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dkvb.bottleneck.batch import Batch
from dkvb.bottleneck.keys import Keys
from dkvb.bottleneck.sgd import LearnedValues

CANDIDATES = ("used", "all")


def used_keys(keys: Keys, learned: LearnedValues) -> tuple[Keys, Tensor]:
    """Return the used keys, and the number (C, K') of each among all keys; computed once."""
    known: tuple[Keys, Tensor] | None = vars(learned).get("_used_keys")
    if known is None or known[1].device != keys.keys.device:
        known = keys.subset(learned.active)
        vars(learned)["_used_keys"] = known
    return known


def candidate_keys(keys: Keys, learned: LearnedValues, candidates: str) -> tuple[Keys, Tensor]:
    """Return the keys that predictions search, and the number (C, K') of each among all keys."""
    if candidates == "used":
        return used_keys(keys, learned)
    numbers = torch.arange(keys.n_pairs, device=keys.device)
    return keys, numbers.expand(keys.n_codebooks, -1)


def nearest_candidates(keys: Keys, learned: LearnedValues, batch: Batch, candidates: str) -> Tensor:
    """Return the nearest candidate key of each codebook (n, C), numbered among all keys."""
    return batch.codes if candidates == "all" else _nearest_used(keys, learned, batch)


def _nearest_used(keys: Keys, learned: LearnedValues, batch: Batch) -> Tensor:
    """Return the nearest used key of each codebook (n, C) int64.

    Known codes are taken where they are used keys; otherwise the used keys alone are searched. A
    batch keeps the result: learning the same rows a second time uses no other keys.
    """
    if batch.known_codes is None:
        used, number = used_keys(keys, learned)
        return number.gather(1, Batch(used, batch.X).codes.T.long()).T
    active, known = learned.active, vars(batch).get("_read")
    if known is not None and torch.equal(known[0], active):
        read: Tensor = known[1]
        return read
    codes = batch.known_codes.to(torch.int64)
    books = torch.arange(codes.shape[1], device=codes.device)
    rows = torch.nonzero(~active[books, codes].all(dim=1))[:, 0]
    if len(rows):
        codes[rows] = _nearest_used(keys, learned, Batch(keys, batch[rows].X))
    vars(batch)["_read"] = (active, codes)
    return codes
