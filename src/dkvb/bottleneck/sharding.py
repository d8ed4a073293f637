"""The codebooks of one process, where a model is too large for one."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb.bottleneck.heads import Projection
from dkvb.bottleneck.keys import Keys

_made: WeakKeyDictionary[Keys, Keys] = WeakKeyDictionary()


def local_codebooks(keys: Keys) -> Keys:
    """This process's part of the codebooks; outside of a job, the keys themselves.

    The part has the fingerprint of the whole, for which it stands here.
    """
    if process_group.world_size() == 1:
        return keys
    if keys not in _made:
        part = some_codebooks(keys, process_group.shard(keys.n_codebooks))
        vars(part)["fingerprint"] = keys.fingerprint
        _made[keys] = _made[part] = part
    return _made[keys]


def some_codebooks(keys: Keys, books: slice) -> Keys:
    """Keys with some of the codebooks, which give rows the same codes as among all.

    >>> import numpy as np
    >>> from dkvb import fit_keys
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> keys = fit_keys(X, n_codebooks=4, n_pairs=5, key_dim=2, epochs=1)
    >>> torch.equal(some_codebooks(keys, slice(1, 3)).codes(X), keys.codes(X)[:, 1:3])
    True
    """
    count = len(range(keys.n_codebooks)[books])
    if count == 0:
        raise ValueError(
            f"codebooks: expected at least one for each of {process_group.world_size()} processes; "
            f"got {keys.n_codebooks} in all; start fewer processes"
        )
    old = keys.projection
    matrices = old.matrices[books] if old.matrices is not None else _selection(old, books)
    kind = old.kind if matrices is None else "gaussian"
    projection = Projection(kind, count, old.key_dim, old.width, matrices)
    return replace(
        keys,
        projection=projection,
        keys=keys.keys[books].contiguous(),
        quantization_error=keys.quantization_error[books],
    )


def _selection(projection: Projection, books: slice) -> Tensor | None:
    """What chunks of a row are, as matrices (C, p, d) of 0 and 1; None for whole rows."""
    if projection.kind != "partition":
        return None
    C, d = projection.n_codebooks, projection.key_dim
    matrices = torch.zeros((C, projection.width, d))
    book, place = torch.arange(C)[:, None], torch.arange(d)
    matrices[book, book * d + place, place] = 1.0
    return matrices[books]
