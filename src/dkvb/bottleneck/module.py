"""The key-value bottleneck as a module for people who build networks."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dkvb._support import files
from dkvb._support.hashing import bits
from dkvb._support.validation import one_of, positive_int, real
from dkvb.bottleneck.decoder import MeanPool, make_decoder
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.keys import Keys
from dkvb.bottleneck.values import count_usage, fetch, flat_codes, start_values

GRADIENTS = ("values", "straight-through", "gumbel")
POOLS = ("before", "after")


class KeyValueBottleneck(nn.Module):
    """Snap to frozen keys, fetch the paired values, decode: embeddings (n, m) → (n, outputs).

    Autograd reaches values and decoder. Keys and projection are buffers that no optimiser sees,
    unless `gradient` is `"straight-through"` or `"gumbel"` (nearest key, or a key sampled by
    distance, in the forward pass; the gradient of a softmax over distances in the backward pass):
    then they are parameters too, and what they learn is forgotten like in any network.

    Spatial maps (n, h, w, m) are averaged over positions `pool="before"` the bottleneck, or
    `"after"` it, with h·w codes an image.

    >>> import numpy as np
    >>> from dkvb import KeyValueBottleneck, fit_keys
    >>> X = np.random.default_rng(0).normal(size=(200, 8)).astype("float32")
    >>> keys = fit_keys(X, n_codebooks=4, n_pairs=16, key_dim=3, epochs=2)
    >>> model = KeyValueBottleneck(keys, n_outputs=10)
    >>> [name for name, _ in model.named_parameters()]
    ['values']
    >>> model(torch.from_numpy(X[:5])).shape
    torch.Size([5, 10])
    """

    centre: Tensor
    components: Tensor | None
    projection: Tensor | None
    keys: Tensor
    usage: Tensor

    def __init__(
        self,
        keys: Keys,
        n_outputs: int,
        *,
        value_dim: int | None = None,
        decoder: str | nn.Module = "mean",
        train_decoder: bool = True,
        value_start: str = "zero",
        pool: str = "before",
        gradient: str = "values",
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        positive_int("n_outputs", n_outputs)
        value_dim = n_outputs if value_dim is None else positive_int("value_dim", value_dim)
        self.pool = one_of("pool", pool, POOLS)
        self.gradient = one_of("gradient", gradient, GRADIENTS)
        self.temperature = real("temperature", temperature, low=0.0, low_open=True)
        self.seed = seed
        self._source = keys  # what is not a tensor: kinds, settings, report
        self._current: tuple[Any, Any, Keys] | None = None
        self.register_buffer("centre", keys.conditioning.centre.clone())
        self.register_buffer("components", _clone(keys.conditioning.components))
        self._register_keys(keys)
        self.register_buffer(
            "usage", torch.zeros(keys.keys.shape[:2], dtype=torch.int64, device=keys.device)
        )
        shape = (keys.n_codebooks, keys.n_pairs, value_dim)
        self.values = nn.Parameter(
            start_values(*shape, start=value_start, seed=seed).to(keys.device)
        )
        self.decoder = make_decoder(
            decoder,
            n_codebooks=keys.n_codebooks,
            value_dim=value_dim,
            n_outputs=n_outputs,
            seed=seed,
        ).to(keys.device)
        if not train_decoder:
            self.decoder.requires_grad_(False)
        self._draws = 0

    def _register_keys(self, keys: Keys) -> None:
        projection, own = _clone(keys.projection.matrices), keys.keys.clone()
        if self.gradient == "values":
            self.register_buffer("projection", projection)
            self.register_buffer("keys", own)
        else:
            self.projection = None if projection is None else nn.Parameter(projection)
            self.keys = nn.Parameter(own)

    def frozen_keys(self) -> Keys:
        """The keys as they are now, as one immutable object."""
        tensors = (self.centre, self.components, self.projection, self.keys)
        state = [None if t is None else (t.data_ptr(), t._version, t.device) for t in tensors]
        if self._current is None or self._current[0] != state:
            if self.keys.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"keys: expected float32 or float64; got {self.keys.dtype}, which moves the "
                    "keys; leave the bottleneck in float32 and use torch.autocast around it"
                )
            s = self._source
            # Copies, since optimisers and load_state_dict write into these tensors.
            centre, components, projection, keys = (_clone(t) for t in tensors)
            assert centre is not None
            assert keys is not None
            p = s.projection
            aliases = [None if t is None else t.detach() for t in tensors]  # hold their addresses
            self._current = (
                state,
                aliases,
                Keys(
                    Conditioning(
                        centre, components, s.conditioning.power, s.conditioning.normalise
                    ),
                    Projection(p.kind, p.n_codebooks, p.key_dim, p.width, projection),
                    keys,
                    s.quantization_error.to(keys.device),
                    s.novelty.to(keys.device),
                    s.report,
                    s.settings,
                ),
            )
        return self._current[2]

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings (n, m), or maps (n, h, w, m), to outputs (n, outputs)."""
        positions = 1
        if x.ndim == 4:
            if self.pool == "before":
                x = x.mean(dim=(1, 2))
            else:
                positions = x.shape[1] * x.shape[2]
                x = x.flatten(0, 2)
        codes = self.frozen_keys().codes(x).long()  # (n·positions, C)
        if self.gradient != "values" and torch.is_grad_enabled():
            return self._decode(self._estimated(x, codes), positions)
        return self.forward_codes(codes.unflatten(0, (-1, positions)))

    def forward_codes(self, codes: Tensor) -> Tensor:
        """Codes (n, C), or (n, positions, C), to outputs: for rows whose codes are known."""
        if codes.ndim not in (2, 3) or codes.shape[-1] != self.values.shape[0]:
            raise ValueError(
                f"codes: expected (n, {self.values.shape[0]}) or (n, positions, "
                f"{self.values.shape[0]}), one a codebook; got shape {tuple(codes.shape)}"
            )
        if codes.ndim == 2:
            codes = codes[:, None]
        n, positions, C = codes.shape
        flat = codes.reshape(-1, C)
        if self.training:
            count_usage(self.usage, flat)
        if isinstance(self.decoder, MeanPool):  # no (n, C, d_value) tensor
            places = flat_codes(flat, self.values.shape[1]).view(n, positions * C)
            return nn.functional.embedding_bag(places, self.values.flatten(0, 1), mode="mean")
        return self._decode(fetch(self.values, flat), positions)

    def _decode(self, fetched: Tensor, positions: int) -> Tensor:
        """Fetched values (n·positions, C, d_value) → (n, outputs)."""
        pooled = fetched.unflatten(0, (-1, positions)).mean(dim=1)
        return torch.as_tensor(self.decoder(pooled))

    def _estimated(self, x: Tensor, codes: Tensor) -> Tensor:
        """Values of the keys chosen, with a gradient to keys and projection: (n, C, d_value)."""
        heads = self._differentiable_heads(x)
        draw = self._draws if self.gradient == "gumbel" and self.training else None
        fetched, chosen = [], []
        for book in range(self.keys.shape[0]):
            # Recomputed in the backward pass, so that no n × C × K tensor is ever kept.
            value, code = checkpoint(
                self._estimated_book,
                heads[:, book],
                codes[:, book],
                book,
                draw,
                use_reentrant=False,
            )
            fetched.append(value)
            chosen.append(code)
        if self.training:
            self._draws += 1
            count_usage(self.usage, torch.stack(chosen, dim=1))
        return torch.stack(fetched, dim=1)

    def _estimated_book(
        self, heads: Tensor, codes: Tensor, book: int, draw: int | None
    ) -> tuple[Tensor, Tensor]:
        """Values (n, d_value) and codes (n,) of one codebook, sampled if a draw is numbered."""
        squared = torch.cdist(heads, self.keys[book]).square()  # (n, K)
        unit = squared.detach().amin(dim=1).mean().clamp(min=torch.finfo(squared.dtype).tiny)
        logits = -squared / (self.temperature * unit)
        if draw is not None:
            logits = logits + self._gumbel(logits, book, draw)
            codes = logits.argmax(dim=1)
        weights = logits.softmax(dim=1)
        # The difference is zero in the forward pass and the softmax's gradient in the backward one.
        slope = (weights - weights.detach()) @ self.values[book].detach()
        return self.values[book, codes] + slope, codes

    def _gumbel(self, logits: Tensor, book: int, draw: int) -> Tensor:
        # From counters, so that the backward pass recomputes the same sample.
        places = torch.arange(logits.numel(), device=logits.device).view_as(logits)
        uniform = (bits(self.seed, draw, book, places).double() + 0.5) / 2.0**63
        return -torch.log(-torch.log(uniform)).to(logits.dtype)

    def _differentiable_heads(self, x: Tensor) -> Tensor:
        keys = self.frozen_keys()
        rows = keys.conditioning(x).to(self.keys.dtype)
        if self.projection is None:
            return keys.projection(rows)
        return torch.einsum("np,cpd->ncd", rows, self.projection)

    def save(self, path: str | Path) -> None:
        """Write keys, values, decoder and settings to a file, safetensors."""
        from dkvb.bottleneck.serialisation import bottleneck_state

        files.write(path, "bottleneck", bottleneck_state(self))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        decoder: nn.Module | None = None,
        device: torch.device | str = "cpu",
    ) -> KeyValueBottleneck:
        """The module in a file. A `decoder` of your own must be given again: files hold no code."""
        from dkvb.bottleneck.serialisation import bottleneck_from

        return bottleneck_from(files.read(path, "bottleneck").state, decoder, device)

    def prune(self) -> KeyValueBottleneck:
        """A smaller model without the pairs that training never selected; this one is unchanged."""
        if not bool(self.usage.any()):
            raise ValueError(
                "prune: expected a model that has been trained; no pair was ever selected; "
                "run forward passes in training mode first"
            )
        smaller, place = self.frozen_keys().subset(self.usage > 0)
        books = torch.arange(place.shape[0], device=place.device)[:, None]
        pruned = KeyValueBottleneck(
            smaller,
            n_outputs=self.values.shape[2],
            decoder=deepcopy(self.decoder),
            pool=self.pool,
            gradient=self.gradient,
            temperature=self.temperature,
            seed=self.seed,
        )
        with torch.no_grad():
            pruned.values.copy_(self.values[books, place])
        filler = torch.nn.functional.pad(place[:, 1:] == place[:, :1], (1, 0))
        pruned.usage.copy_(self.usage[books, place].masked_fill(filler, 0))
        return pruned.train(self.training)


def _clone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()
