"""Soft assignment: every pair of a codebook, weighed by how near its key lies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dkvb.bottleneck.keys import Keys

READ_TEMPERATURE = 0.8
LEVELS = 65535  # weights are whole multiples of 1/LEVELS, so that sums of their products are exact
BLOCK = 128  # rows multiplied at a time where a row's weights must not depend on its batch
_LARGEST = 65504.0  # that float16 can hold


@dataclass(frozen=True, eq=False)
class SoftAssignment:
    """Weights softmax(−(d² − d²_min) / (temperature · e)) over the keys of each codebook.

    e is the codebook's quantization error, the mean d²_min of held-out key-initialisation rows,
    frozen in `Keys`.
    Weights come in whole steps of 1/65535, as float64 integers: sums of them and of their products
    are then exact in any order. They are a function of the conditioned row in float16, which is
    all that must be kept to find the same weights again.
    """

    keys: Keys
    temperature: float = READ_TEMPERATURE

    @property
    def n_features(self) -> int:
        """M = C·K."""
        return self.keys.n_codebooks * self.keys.n_pairs

    @cached_property
    def _unit(self) -> float:
        """A power of two near the size of conditioned rows: brings them into float16's range."""
        size = float(self.keys.keys.double().square().mean().sqrt())
        return 2.0 ** math.floor(math.log2(size)) if size > 0 else 1.0

    @cached_property
    def _linear(self) -> tuple[Tensor, Tensor]:
        """A (p, M) and b (M,) with −d² / (temperature · e) = rows·A + b, up to what is the
        same for all keys of a codebook: with z the row and P the projection, d² = ‖Pz‖² − 2 z·Pᵀk
        + ‖k‖², so that projection and keys are one matrix."""
        keys = self.keys
        K, width = keys.n_pairs, keys.projection.width
        scale = self.temperature * _quantization_error(keys)  # (C,)
        basis = torch.eye(width, dtype=torch.float64, device=keys.device)
        matrix = torch.empty((width, keys.n_codebooks * K), dtype=torch.float64, device=keys.device)
        for book in range(keys.n_codebooks):
            own = slice(book, book + 1)
            heads = keys.projection(basis, own)[:, 0]  # (p, d)
            factor = 2 * self._unit / scale[book]
            matrix[:, book * K : (book + 1) * K] = factor * (heads @ keys.keys[book].double().T)
        bias = -keys.keys.double().square().sum(dim=2) / scale[:, None]  # (C, K)
        # Of equal keys the first stands for all; copies would count twice.
        return matrix, bias.masked_fill(~keys.first_of_equals, -torch.inf).flatten()

    def rows(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) float32 → conditioned rows (n, p) float16, in units of `_unit`."""
        scaled = self.keys.conditioning(x) / self._unit
        return scaled.clamp(-_LARGEST, _LARGEST).to(torch.float16)

    def weights(self, rows: Tensor) -> Tensor:
        """Conditioned rows (n, p) float16 → weights (n, M) float64, whole numbers up to LEVELS."""
        matrix, bias = self._linear
        scores = torch.addmm(bias, rows.double(), matrix)  # (n, M)
        shares = scores.view(-1, self.keys.n_codebooks, self.keys.n_pairs).softmax(dim=2)
        return shares.mul_(LEVELS).round_().flatten(1)

    def __call__(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) float32 → weights (n, M): the short way, fit for predictions."""
        return self.weights(self.rows(x))

    def __getstate__(self) -> dict[str, Any]:
        return {"keys": self.keys, "temperature": self.temperature}  # the rest follows


def in_blocks(function: Callable[[Tensor], Tensor], x: Tensor, size: int = BLOCK) -> Tensor:
    """`function` of rows x (n, w), always called with `size` rows: matrix products choose their way
    by the number of rows, and what is rounded in another order is another number."""
    parts = []
    for block in x.split(size):
        full = torch.nn.functional.pad(block, (0, 0, 0, size - len(block)))
        parts.append(function(full)[: len(block)])
    return torch.cat(parts)


def _quantization_error(keys: Keys) -> Tensor:
    """The quantization error (C,) of each codebook; where every held-out row is a key, the variance
    of keys."""
    centred = keys.keys.double() - keys.keys.double().mean(dim=1, keepdim=True)
    variance = centred.square().sum(dim=2).mean(dim=1)  # (C,)
    quantization_error = keys.quantization_error.double()
    quantization_error = torch.where(
        quantization_error > 1e-6 * variance, quantization_error, variance
    )
    return torch.where(quantization_error > 0, quantization_error, 1.0)
