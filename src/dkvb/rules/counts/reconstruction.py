"""Conditioned rows from their codes, as far as codes tell them.

Every codebook says where a row lies in another projection, up to the distance to its key. Together
they say where it lies by least squares. The rows that counts keep for calibration are kept as codes
alone; this is what their class means can be compared with.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dkvb.bottleneck import Keys

_inverses: WeakKeyDictionary[Keys, Tensor] = WeakKeyDictionary()


def conditioned_rows(keys: Keys, codes: Tensor) -> Tensor:
    """The conditioned rows (n, p) float64 that codes (n, C) fit best, given how far rows lie from
    their keys and from each other."""
    # Each only once and in their own order, so that no bit depends on the order of rows.
    codes, row = torch.unique(codes.long(), dim=0, return_inverse=True)
    p = keys.projection.width
    books = torch.arange(keys.n_codebooks, device=keys.device)
    heads = keys.keys[books, codes].double()  # (distinct, C, d)
    if keys.projection.kind == "partition":
        return heads.flatten(1)[row]
    if keys.projection.kind == "identity":
        return heads.mean(dim=1)[row]
    if keys not in _inverses:
        basis = torch.eye(p, dtype=torch.float64, device=keys.device)
        projection = keys.projection(basis).flatten(1)  # (p, C·d)
        noise = keys.quantization_error.double().mean() / keys.key_dim
        signal = keys.keys.double().var(dim=1, correction=0).mean() + noise
        ridge = float(noise / signal) if signal > 0 else 1.0
        gram = projection @ projection.T + max(ridge, 1e-9) * basis
        _inverses[keys] = torch.linalg.solve(gram, projection).T.contiguous()  # (C·d, p)
    return (heads.flatten(1) @ _inverses[keys])[row]
