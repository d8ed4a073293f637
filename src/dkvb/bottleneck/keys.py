"""Frozen keys, and the codes they give (section 2, step 2.1 of the paper)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import files, validation
from dkvb._support.hashing import bits
from dkvb.bottleneck.batch import chunk_elements, nearest_keys
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.rows import as_tensor, chunks
from dkvb.kernels.hashing import content_hash
from dkvb.kernels.nearest import KeyIndex, build_index, decide

HASHED_ELEMENTS = (1 << 20, 1 << 28)  # of keys that are compared at a time, on a CPU and on a GPU


@dataclass(frozen=True)
class KeyReport:
    """What a careful person wants to know about keys, measured on rows held out from fitting."""

    rows: int  # held-out rows the figures below come from
    quantization_error: float  # root mean squared distance from a head to its key
    relative_error: float  # its square over the variance of the heads: 0 perfect, 1 useless
    distinct: float  # share of keys that differ from every other key of their codebook
    used: float  # share of keys that are the nearest to some key-initialisation row


@dataclass(frozen=True, eq=False)
class Keys:
    """C codebooks of K frozen keys, with everything that leads from an embedding to its codes.

    One object serves many classifiers: cloning shares it, merging compares fingerprints.
    """

    conditioning: Conditioning
    projection: Projection
    keys: Tensor  # (C, K, d) float32, in the coordinates of conditioned, projected rows
    quantization_error: (
        Tensor  # (C,) float32, mean squared distance of held-out heads to their keys
    )
    novelty: Tensor  # (h,) float32, ascending: how far held-out rows lie from their keys
    report: KeyReport
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def n_codebooks(self) -> int:
        return self.keys.shape[0]

    @cached_property
    def n_pairs(self) -> int:
        return self.keys.shape[1]

    @cached_property
    def key_dim(self) -> int:
        return self.keys.shape[2]

    @cached_property
    def width(self) -> int:
        """Width of the embeddings that these keys understand."""
        return self.conditioning.width

    @cached_property
    def device(self) -> torch.device:
        return self.keys.device

    @cached_property
    def fingerprint(self) -> str:
        """A digest of every number that decides codes: equal keys, equal fingerprint."""
        digest = hashlib.sha256()
        c, p = self.conditioning, self.projection
        digest.update(repr((c.power, c.normalise, p.kind, p.n_codebooks, p.key_dim)).encode())
        for tensor in (c.centre, c.components, p.matrices, self.keys, self.quantization_error):
            if tensor is not None:
                digest.update(repr(tuple(tensor.shape)).encode())
                flat = tensor.detach().cpu().contiguous().view(-1).numpy()
                digest.update(memoryview(flat))  # type: ignore[arg-type]  # hints know no buffers
        return digest.hexdigest()[:32]

    @cached_property
    def first_of_equals(self) -> Tensor:
        """True (C, K) for keys that equal no earlier key of their codebook: only these can win."""
        return first_of_equals(self.keys)

    @cached_property
    def index(self) -> KeyIndex:
        """These keys laid out for the search among all of them."""
        return build_index(self.keys, self.first_of_equals)

    @cached_property
    def chunk_rows(self) -> int:
        """How many rows to search for at a time."""
        (C, _, d), width = self.keys.shape, len(self.conditioning.centre)
        return max(1, chunk_elements(self) // (C * d + width + self.projection.width))

    def heads(self, X: Any) -> Tensor:
        """The heads of embeddings (n, m), all at once: (n, C, d) float64."""
        X = as_tensor(validation.rows(X, width=self.width)).to(self.device)
        return self.projection(self.conditioning(X))

    def codes(
        self,
        X: Any,
        *,
        top: int | None = None,
        active: Tensor | None = None,
        backend: str | None = None,
        out: str | Path | None = None,
    ) -> Tensor:
        """The nearest key in each codebook (n, C), by L2 distance, ties to the lowest index; with
        `top`, that many of the nearest keys (n, C, top).

        Codes are canonical: the same for any batch size, number of threads and backend. X is an
        array or a memory map (n, m); memory stays bounded whatever n is. `active` (C, K) restricts
        the search to some keys; where a codebook has fewer than `top` of these, the last is
        repeated. `out` names a .npy file that codes are written to, chunk by chunk, and read from
        as a memory map on the CPU: neither X nor its codes need fit into memory.
        """
        X = validation.rows(X, width=self.width)
        several = 1 if top is None else validation.positive_int("top", top)
        if several > self.n_pairs:
            raise ValueError(
                f"top: expected at most {self.n_pairs}, the number of pairs; got {several}"
            )
        out = None if out is None else validation.new_file("out", out)
        index, allowed = self._restricted(active, backend)
        shape = (len(X), self.n_codebooks, several)
        dtype = torch.uint16 if self.n_pairs <= 1 << 16 else torch.int32
        parts = (
            (part, codes.to(dtype)) for part, codes, _ in self._search(X, index, allowed, several)
        )
        if out is not None:
            every = _in_file(out, shape, dtype, parts)
        else:
            every = torch.empty(shape, dtype=dtype, device=self.device)
            for part, codes in parts:
                every[part] = codes
        return every[:, :, 0] if top is None else every

    def distances(self, X: Any, codes: Tensor) -> Tensor:
        """Squared L2 distances, float64, from heads to the keys that codes (n, C) or (n, C, top)
        name, in the same shape."""
        X = validation.rows(X, width=self.width)
        named = codes if codes.ndim == 3 else codes[:, :, None]  # (n, C, top)
        out = torch.empty(named.shape, dtype=torch.float64, device=self.device)
        size = max(1, self.chunk_rows // named.shape[2])
        for part, x in chunks(X, size, "X", self.device):
            rows, _ = self.conditioning.with_error(self.conditioning.centred(x))
            out[part] = self.projection.distances(rows, self.keys, named[part])
        return out.view(codes.shape)

    def exact_codes(self, z: Tensor, books: Tensor, allowed: Tensor, top: int = 1) -> Tensor:
        """The canonical codes (r, top) of centred rows z (r, m), each in one codebook (r,)."""
        largest = max(self.n_pairs, self.projection.width) * self.key_dim
        step = max(1, chunk_elements(self) // largest)
        parts = [torch.empty((0, top), dtype=torch.int32, device=self.device)]
        for start in range(0, len(z), step):
            book = books[start : start + step]
            rows = self.conditioning.exact(z[start : start + step])
            heads = self.projection.exact(rows, book)
            codes, squared = decide(heads, self.keys[book], allowed[book], top)
            # Where fewer than `top` keys are allowed, the last of them stands for the missing.
            last = (squared.isfinite().sum(dim=1, keepdim=True) - 1).clamp(min=0)
            place = torch.arange(top, device=self.device).minimum(last)
            parts.append(codes.gather(1, place))
        return torch.cat(parts)

    def subset(self, kept: Tensor) -> tuple[Keys, Tensor]:
        """Only the keys in kept (C, K), and the place (C, K') that each had here.

        Codebooks keep different numbers; the shorter ones are filled with copies of their first
        key, which ties, going to the lowest index, never select.
        """
        count = kept.sum(dim=1)
        if not bool((count > 0).all()):
            raise ValueError("kept: expected at least one key a codebook; some codebook keeps none")
        place = torch.argsort((~kept).to(torch.uint8), dim=1, stable=True)[:, : int(count.max())]
        filler = torch.arange(place.shape[1], device=place.device) >= count[:, None]
        place = torch.where(filler, place[:, :1], place)
        books = torch.arange(self.n_codebooks, device=place.device)[:, None]
        smaller = replace(self, keys=self.keys[books, place].contiguous())
        if not bool((kept & ~self.first_of_equals).any()):
            # No two of the kept keys are equal, so that nothing has to be compared again.
            vars(smaller)["first_of_equals"] = ~filler
        return smaller, place

    def _search(
        self, X: Any, index: KeyIndex, allowed: Tensor, top: int
    ) -> Iterator[tuple[slice, Tensor, int]]:
        """Canonical codes by chunks: (slice, codes (r, C, top), how many were decided again)."""
        for part, x in chunks(X, self.chunk_rows, "X", self.device):
            z = self.conditioning.centred(x)
            codes, _, decided_again = nearest_keys(self, z, index, allowed, top)
            yield part, codes, decided_again

    def _restricted(self, active: Tensor | None, backend: str | None) -> tuple[KeyIndex, Tensor]:
        if active is None:
            index = self.index if backend is None else None
            allowed = self.first_of_equals
            return index or build_index(self.keys, allowed, backend), allowed
        expected = (self.n_codebooks, self.n_pairs)
        if tuple(active.shape) != expected or active.dtype != torch.bool:
            raise ValueError(
                f"active: expected a boolean tensor of shape {expected}; "
                f"got {active.dtype} of shape {tuple(active.shape)}"
            )
        if not bool(active.any(dim=1).all()):
            book = int(torch.nonzero(~active.any(dim=1))[0, 0])
            raise ValueError(
                f"active: expected at least one key a codebook; codebook {book} has none"
            )
        allowed = first_of_equals(self.keys, active.to(self.device))
        return build_index(self.keys, allowed, backend), allowed

    def to(self, device: torch.device | str) -> Keys:
        """The same keys on another device."""
        if torch.device(device) == self.device:
            return self
        return replace(
            self,
            conditioning=self.conditioning.to(device),
            projection=self.projection.to(device),
            keys=self.keys.to(device),
            quantization_error=self.quantization_error.to(device),
            novelty=self.novelty.to(device),
        )

    def save(self, path: str | Path) -> None:
        """Write these keys to a file, safetensors, that many classifiers can share."""
        from dkvb.bottleneck.serialisation import keys_state

        files.write(path, "keys", keys_state(self))

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Keys:
        """The keys in a file, which is refused if it is not whole."""
        from dkvb.bottleneck.serialisation import keys_from

        return keys_from(files.read(path, "keys").state, device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Keys:
        return self  # immutable: clones of a classifier share one object

    def __repr__(self) -> str:
        r = self.report
        return (
            f"Keys({self.n_codebooks} codebooks × {self.n_pairs} pairs, key_dim={self.key_dim}, "
            f"width={self.width}, error={r.relative_error:.3f}, used={r.used:.0%}, "
            f"fingerprint={self.fingerprint[:8]})"
        )


def first_of_equals(keys: Tensor, active: Tensor | None = None) -> Tensor:
    """True (C, K) for active keys that equal no earlier active key of their codebook."""
    first = torch.ones_like(keys[:, :, 0], dtype=torch.bool) if active is None else active.clone()
    # Some codebooks at a time: hashing takes several times the memory of the keys.
    size = max(1, HASHED_ELEMENTS[keys.device.type == "cuda"] // max(1, keys[0].numel()))
    for part, some in zip(first.split(size), keys.split(size), strict=True):
        _drop_repeated(some, part)
    return first


def _drop_repeated(keys: Tensor, first: Tensor) -> None:
    """Set first (C, K) to False for keys that equal an earlier key for which it is True."""
    # Keys that share no first coordinate are distinct: mostly all of them.
    ascending, order = keys[:, :, 0].sort(dim=1, stable=True)
    equal = ascending[:, 1:] == ascending[:, :-1]
    shared = pad(equal, (0, 1)) | pad(equal, (1, 0))
    book, place = torch.nonzero(shared & first.gather(1, order), as_tuple=True)
    key = order[book, place]
    # Equal keys have equal hashes and, as sorting is stable, lie together in their own order.
    by_hash = torch.argsort(bits(0, 0, book, content_hash(keys[book, key])), stable=True)
    book, key = book[by_hash], key[by_hash]
    items = keys[book, key]
    repeated = (items[1:] == items[:-1]).all(dim=1) & (book[1:] == book[:-1])
    first[book[1:][repeated], key[1:][repeated]] = False


def _in_file(
    path: Path, shape: tuple[int, ...], dtype: torch.dtype, found: Iterator[tuple[slice, Tensor]]
) -> Tensor:
    """Codes chunk by chunk into a .npy file, then as a tensor whose memory is the file."""
    unfinished = path.with_name(path.name + ".unfinished")
    kind = np.uint16 if dtype == torch.uint16 else np.int32
    try:
        array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=kind, shape=shape)
        for part, codes in found:
            array[part] = codes.cpu().numpy()
        array.flush()
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    # Copy on write: torch knows no read-only tensors, and nothing may change the file.
    return torch.from_numpy(np.lib.format.open_memmap(path, mode="c"))
