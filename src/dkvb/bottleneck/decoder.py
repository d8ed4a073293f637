"""From fetched values to the output (section 2, step 3 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dkvb._support.validation import one_of, positive_int

DECODERS = ("mean", "linear", "mlp")


class MeanPool(nn.Module):
    """The paper's decoder: the mean over codebooks, no weights. The softmax is left to the loss."""

    def forward(self, fetched: Tensor) -> Tensor:
        """Fetched values (n, C, d_value) → logits (n, d_value)."""
        return fetched.mean(dim=1)


def make_decoder(
    decoder: str | nn.Module,
    *,
    n_codebooks: int,
    value_dim: int,
    n_outputs: int,
    hidden: int = 128,
    seed: int = 0,
) -> nn.Module:
    """`"mean"`, `"linear"` and `"mlp"` over the concatenated values, or any module of your own from
    (n, C, d_value) to (n, outputs)."""
    if isinstance(decoder, nn.Module):
        return decoder
    one_of("decoder", decoder, DECODERS)
    if decoder == "mean":
        if value_dim != n_outputs:
            raise ValueError(
                f"value_dim: expected {n_outputs}, one a class, for decoder='mean'; got {value_dim}"
            )
        return MeanPool()
    positive_int("hidden", hidden)
    width = n_codebooks * value_dim
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if decoder == "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(width, n_outputs))
        return nn.Sequential(
            nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_outputs)
        )
