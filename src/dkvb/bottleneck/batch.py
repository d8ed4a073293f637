"""Embeddings with the codes that frozen keys give them: searched for on first use, then kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dkvb.bottleneck.lazy_rows import picked
from dkvb.bottleneck.rows import as_tensor
from dkvb.kernels.nearest import KeyIndex, refine, search

if TYPE_CHECKING:
    from dkvb.bottleneck.keys import Keys

# Elements of float64 that a chunk of heads, or of exact distances, may hold: 32 MB, 512 MB on CUDA;
# there 1/64 of the memory if that is more, since the CPU prepares each chunk while the GPU waits.
CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
CHUNK_SHARE = 64
FEW_ROWS = 512  # up to here, centred rows are kept: they are needed more than once


class Batch:
    """Rows of embeddings and, from their first use on, their codes.

    The embeddings stay where they are. A memory map or a tensor is checked and read chunk by chunk
    when codes are searched for; those who need codes alone do not read it again.

    Parameters
    ----------
    keys : Keys
        The frozen keys that give codes.
    X : array, memory map or tensor (n, m), or None
        Embeddings that `validation.embeddings` has returned; None where only codes were kept.
    codes : Tensor (n, C), optional
        Codes that are known already.
    """

    def __init__(self, keys: Keys, X: Any, codes: Tensor | None = None) -> None:
        self.keys = keys
        self.X = X
        self.known_codes = codes
        self._distances: Tensor | None = None
        self._centred: Tensor | None = None
        self.shape = (len(X if codes is None else codes), len(keys.conditioning.centre))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Batch:
        """Some rows, by a slice, indices or a mask; known codes are not searched for again."""
        codes = self.known_codes
        if codes is not None:
            # torch cannot index uint16 on every device, but int16 of the same bits.
            small = codes.dtype == torch.uint16
            codes = codes.view(torch.int16)[rows].view(torch.uint16) if small else codes[rows]
        return Batch(self.keys, None if self.X is None else picked(self.X, rows), codes)

    @property
    def codes(self) -> Tensor:
        """The nearest key of each codebook (n, C), by L2 distance, ties to the lowest index."""
        if self.known_codes is None:
            self._search(distances=False)
            assert self.known_codes is not None
        return self.known_codes

    @property
    def distances(self) -> Tensor:
        """Squared L2 distance from each head to its nearest key (n, C), float64."""
        if self._distances is None:
            self._search(distances=True)
            assert self._distances is not None
        return self._distances

    def chunks(self, size: int, centred: bool = False) -> Iterator[tuple[slice, Tensor]]:
        """(slice, float32 embeddings on the device of the keys), at most `size` rows at a time;
        `centred`: as float64 rows before the conditioning's linear map. Those of a few are kept."""
        if centred and self._centred is not None:
            return iter([(slice(0, len(self._centred)), self._centred)])
        device, checked, n = self.keys.keys.device, type(self.X) is np.ndarray, len(self.X)
        parts = (slice(start, min(start + size, n)) for start in range(0, n, size))
        if checked:
            found = ((part, torch.from_numpy(self.X[part]).to(device)) for part in parts)
        else:
            found = ((part, as_tensor(self.X[part], "X", part.start).to(device)) for part in parts)
        if not centred:
            return found
        change = self.keys.conditioning.centred
        rows = ((part, change(x)) for part, x in found)
        if 0 < n <= min(size, FEW_ROWS):
            self._centred = next(rows)[1]
            return iter([(slice(0, n), self._centred)])
        return rows

    def _search(self, distances: bool) -> None:
        """Find codes, if they are not known, and the distances to these keys if asked for."""
        keys, known, n = self.keys, self.known_codes, self.shape[0]
        (C, K, _), device = keys.keys.shape, keys.keys.device
        dtype = torch.uint16 if K <= 1 << 16 else torch.int32
        codes = torch.empty((n, C), dtype=dtype, device=device) if known is None else known
        squared = torch.empty((n, C) if distances else 0, dtype=torch.float64, device=device)
        for part, z in self.chunks(keys.chunk_rows, centred=True) if n else ():
            if known is None:
                found, far, _ = nearest_keys(keys, z, distances=distances)
                codes[part] = found[:, :, 0].to(codes.dtype)
            else:
                rows, named = keys.conditioning.with_error(z)[0], codes[part, :, None]
                far = keys.projection.distances(rows, keys.keys, named)[:, :, 0]
            if far is not None:
                squared[part] = far
        self.known_codes = codes
        if distances:
            self._distances = squared


def nearest_keys(
    keys: Keys,
    z: Tensor,
    index: KeyIndex | None = None,
    allowed: Tensor | None = None,
    top: int = 1,
    distances: bool = False,
) -> tuple[Tensor, Tensor | None, int]:
    """The `top` nearest keys (r, C, top) of centred rows z (r, m) among those that are `allowed`
    (as `index` is laid out), if asked for the squared distances (r, C) float64 to the nearest, and
    how many codes were decided again.

    The same for any batch size, number of threads and backend: where rounding could have changed
    the answer, it is decided again in float64, by sums in a fixed order where that does not do.
    """
    index = keys.index if index is None else index
    rows, moved = keys.conditioning.with_error(z)
    projection, heads, squared = keys.projection, None, None
    in_float32 = top == 1 and index.backend == "cpu" and projection.has_float32
    if in_float32 and distances:
        codes, unsure, squared = projection.nearest_with_distances(rows, moved, index)
    elif in_float32:
        codes, unsure = projection.nearest_in_float32(rows, moved, index)
    else:
        heads, error = projection.with_error(rows, moved)
        codes, unsure = search(index, heads, top, error)
    book, row = torch.nonzero(unsure.T, as_tuple=True)
    decided_again = len(row)
    if top == 1 and len(row) and squared is None:
        if heads is None:
            unsure_heads, slack = projection.pairs_with_error(rows, moved, row, book)
        else:
            unsure_heads, slack = heads[row, book], error[row, book]
        nearest, sure = refine(index, keys.keys, unsure_heads, book, slack, chunk_elements(keys))
        codes[row[sure], book[sure], 0] = nearest[sure]
        row, book = row[~sure], book[~sure]
    if len(row):
        among = keys.first_of_equals if allowed is None else allowed
        codes[row, book] = keys.exact_codes(z[row], book, among, top)
    if distances and (squared is None or len(row)):
        squared = projection.distances(rows, keys.keys, codes[:, :, :1])[:, :, 0]
    return codes, squared, decided_again


def chunk_elements(keys: Keys) -> int:
    """How many float64 elements a chunk may hold on the device of the keys."""
    device = keys.keys.device
    if device.type != "cuda":
        return CHUNK_ELEMENTS["cpu"]
    memory: int = torch.cuda.get_device_properties(device).total_memory
    return max(CHUNK_ELEMENTS["cuda"], memory // (8 * CHUNK_SHARE))
