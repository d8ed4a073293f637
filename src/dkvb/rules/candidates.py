"""Which keys predictions may read: all of them, or those that learning has used at least once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb.bottleneck import Batch, Keys

OPTIONS = ("used", "all")


def used_keys(keys: Keys, state: Any) -> tuple[Keys, Tensor]:
    """The keys that `state.usage` counts as used, and the number (C, K') that each has among all;
    found once for a state."""
    known: tuple[Keys, Tensor] | None = vars(state).get("_used_keys")
    if known is None or known[1].device != keys.keys.device:
        known = keys.subset(state.usage > 0)
        vars(state)["_used_keys"] = known
    return known


def codes_to_read(keys: Keys, state: Any, batch: Batch) -> Tensor:
    """The nearest used key of each codebook (n, C) int64.

    Known codes are taken where they are used keys. Otherwise the used keys alone are searched:
    with hundreds of codebooks almost every row has one whose nearest key was never used. A batch
    keeps what was found for it: learning the same rows again uses no other keys.
    """
    if batch.known_codes is None:
        found, number = used_keys(keys, state)
        return number.gather(1, Batch(found, batch.X).codes.T.long()).T
    used, known = state.usage > 0, vars(batch).get("_read")
    if known is not None and torch.equal(known[0], used):
        read: Tensor = known[1]
        return read
    codes = batch.known_codes.to(torch.int64)
    books = torch.arange(codes.shape[1], device=codes.device)
    rows = torch.nonzero(~used[books, codes].all(dim=1))[:, 0]
    if len(rows):
        codes[rows] = codes_to_read(keys, state, Batch(keys, batch[rows].X))
    vars(batch)["_read"] = (used, codes)
    return codes


def keys_to_read(keys: Keys, state: Any, candidate_keys: str) -> tuple[Keys, Tensor]:
    """The keys that predictions search, and the number (C, K') that each has among all."""
    if candidate_keys == "used":
        return used_keys(keys, state)
    everything = torch.arange(keys.n_pairs, device=keys.device)
    return keys, everything.expand(keys.n_codebooks, -1)


def codes_record(batch: Batch) -> State:
    """Codes of rows for a journal."""
    return State.of(codes=batch.codes)


def codes_from_journal(record: State, keys: Keys, n: int) -> Batch:
    """Rows of which a journal holds the codes."""
    kinds = (torch.uint16, torch.int32)
    codes = record.tensor("codes", kinds, (n, keys.n_codebooks), keys.device)
    if not 0 <= int(codes.int().min()) <= int(codes.int().max()) < keys.n_pairs:
        raise record.damaged("codes: expected pairs that are there")
    return Batch(keys, None, codes)
