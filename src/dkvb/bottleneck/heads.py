"""From embeddings to the heads of C codebooks (section 2, step 1 of the paper).

Conditioning and projection are fitted or drawn once (`conditioning`, `projection`), then frozen;
here they are applied to rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from dkvb.kernels import centring, choose
from dkvb.kernels.nearest import (
    KeyIndex,
    prepare_matrices,
    squared_distances,
    tree_sum,
    version,
)

FEW_ROWS = 64  # up to here, laying out the matrix takes most of the time of a matrix product


@dataclass(frozen=True, eq=False)
class Conditioning:
    """Signed power, L2 normalisation, centring, and a linear map, each optional but the centring.

    Centring changes no distance; without it, float32 distances are wrong where the data's offset
    dwarfs its spread.
    """

    centre: Tensor  # (m,) float32
    components: Tensor | None = None  # (m, p) float32: principal axes, scaled where whitened
    power: float = 1.0
    normalise: bool = False

    @property
    def width(self) -> int:
        return self.centre.shape[0]

    @property
    def output_width(self) -> int:
        return self.width if self.components is None else self.components.shape[1]

    @cached_property
    def _components64(self) -> Tensor | None:
        return None if self.components is None else self.components.double()

    @cached_property
    def _longest(self) -> Tensor:
        """No row of unit length is longer than this once it is centred."""
        length = float(self.centre.double().norm())
        return self.centre.new_full((1,), 1 + 2.0**-20 + length, dtype=torch.float64)

    @cached_property
    def _reach(self) -> float:
        return 1.0 if self.components is None else float(self.components.norm())

    def __call__(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) float32 → conditioned rows (n, p) float64."""
        z = x.double() if self.power == 1.0 else self._elementwise(x)
        if self.normalise:
            norms = z.norm(dim=1, keepdim=True)
            z = z / torch.where(norms > 0, norms, 1.0)
        z = z - self.centre
        return z if self._components64 is None else z @ self._components64

    @cached_property
    def centred(self) -> Callable[[Tensor], Tensor]:
        """The function that leads from embeddings (n, m) float32 to rows (n, m) float64 before the
        linear map, equal in any batch and on any device."""
        centred = centring.backend(self.centre.device).centred
        how = {"centre": self.centre, "power": self.power, "normalise": self.normalise}
        return partial(centred, **how)

    def with_error(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Centred rows (n, m) → conditioned rows (n, p), and how far, in norm, each may lie from
        its exact one (n,)."""
        if self.components is None or self._components64 is None:
            return z, torch.zeros(len(z), dtype=torch.float64, device=z.device)
        length = self._longest.expand(len(z)) if self.normalise else z.norm(dim=1)
        error = length * (2.0**-52 * (len(self.centre) + 4) * self._reach)
        if len(z) <= FEW_ROWS and choose(z.device) == "cpu":
            return version("rescore").multiply(z, self.components), error
        return z @ self._components64, error

    def exact(self, z: Tensor) -> Tensor:
        """The same by sums in a fixed order: equal in any batch and on any device."""
        if self._components64 is None:
            return z
        return torch.cat([tree_sum(row[:, None] * self._components64, 0)[None] for row in z])

    def _elementwise(self, x: Tensor) -> Tensor:
        """The signed power of each entry."""
        z = x.double()
        return z.sign() * (z.abs().sqrt() if self.power == 0.5 else z.abs() ** self.power)

    def to(self, device: torch.device | str) -> Conditioning:
        moved = None if self.components is None else self.components.to(device)
        return Conditioning(self.centre.to(device), moved, self.power, self.normalise)


@dataclass(frozen=True, eq=False)
class Projection:
    """`gaussian`: a fixed random matrix for each codebook; `partition`: consecutive chunks of the
    row; `identity`: the whole row for each codebook."""

    kind: str
    n_codebooks: int
    key_dim: int
    width: int
    matrices: Tensor | None = None  # (C, p, d) float32, gaussian only; kept, not only its seed

    @cached_property
    def _flat(self) -> Tensor:
        assert self.matrices is not None
        return self.matrices.double().permute(1, 0, 2).reshape(self.width, -1)  # (p, C·d)

    @cached_property
    def _norms(self) -> Tensor:
        assert self.matrices is not None
        return self.matrices.flatten(1).double().square().sum(dim=1).sqrt()  # (C,)

    def __call__(self, rows: Tensor, books: slice = slice(None)) -> Tensor:
        """Rows (n, p) float64 → heads (n, C, d) float64, of the codebooks in `books` only."""
        count = len(range(self.n_codebooks)[books])
        if self.kind == "gaussian":
            start, stop, _ = books.indices(self.n_codebooks)
            columns = slice(start * self.key_dim, stop * self.key_dim)
            return (rows @ self._flat[:, columns]).view(-1, count, self.key_dim)
        if self.kind == "partition":
            return rows.view(-1, self.n_codebooks, self.key_dim)[:, books]
        return rows[:, None, :].expand(-1, count, -1)

    def exact(self, rows: Tensor, books: Tensor) -> Tensor:
        """The head of one codebook a row, rows (r, p) and books (r,) → (r, d), by sums in a fixed
        order: equal in any batch and on any device."""
        if self.matrices is not None:
            return tree_sum(rows[:, :, None] * self.matrices[books].double(), dim=1)
        heads = self(rows)
        return heads[torch.arange(len(rows), device=rows.device), books]

    def with_error(self, rows: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
        """Heads (n, C, d) of rows (n, p), and how far, in norm, each may lie from the exact one
        (n, C), if the rows themselves lie up to `moved` (n,) away from theirs."""
        heads = self(rows)
        if self.matrices is None:
            return heads, moved[:, None].expand(-1, self.n_codebooks)
        reach = 2.0**-52 * (self.width + 4) * rows.norm(dim=1) + moved  # (n,)
        return heads, reach[:, None] * self._norms

    @cached_property
    def has_float32(self) -> bool:
        """Whether heads in float32 are quicker than in float64, here and for these matrices."""
        return self._panels is not None

    @cached_property
    def _panels(self) -> Tensor | None:
        return None if self.matrices is None else prepare_matrices(self.matrices, self._norms)

    def nearest_in_float32(
        self, rows: Tensor, moved: Tensor, index: KeyIndex
    ) -> tuple[Tensor, Tensor]:
        """The nearest keys of rows (n, p), which lie up to `moved` (n,) from the exact ones: codes
        (n, C, 1), and where rounding could have changed them (n, C). Only if `has_float32`."""
        assert self._panels is not None
        cpu = version("cpu")
        unit = cpu.HEAD_ROUNDOFF + 2.0**-52 * (self.width + 4)
        errors = unit * rows.norm(dim=1) + moved, self._norms * index.scale  # (n,), (C,)
        how = index.layout, *errors, index.reach, index.scale
        codes, unsure, _ = cpu.search_rows(rows, self._panels, *how)
        return codes, unsure

    def nearest_with_distances(
        self, rows: Tensor, moved: Tensor, index: KeyIndex
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `nearest_in_float32`, but decided in float64 where float32 is unsure, and the squared
        distances (n, C) float64 to the keys found. Only if `has_float32`."""
        reach = 2.0**-52 * (self.width + 4) * rows.norm(dim=1) + moved  # (n,)
        errors = reach, self._norms * index.scale
        how = index.layout, index.bias, *errors, index.reach, index.scale
        found: tuple[Tensor, Tensor, Tensor]
        found = version("rescore").search_with_distances(rows, self.matrices, *how)
        return found

    def pairs_with_error(
        self, rows: Tensor, moved: Tensor, row: Tensor, book: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `with_error`, for rows[row] in the codebooks book (r,): (r, d) float64 and (r,). Only
        if `has_float32`."""
        assert self.matrices is not None
        heads = version("rescore").project_pairs(rows, self.matrices, row, book)
        reach = 2.0**-52 * (self.width + 4) * rows.norm(dim=1) + moved  # (n,)
        return heads, reach[row] * self._norms[book]

    def distances(self, rows: Tensor, keys: Tensor, codes: Tensor) -> Tensor:
        """Squared L2 distances (n, C, top) float64 from the heads of rows (n, p) to the keys
        (C, K, d) that codes (n, C, top) name."""
        if self.has_float32:
            found: Tensor = version("rescore").distances(rows, self.matrices, keys, codes.int())
            return found
        books = torch.arange(self.n_codebooks, device=keys.device)[:, None]
        named = keys[books, codes.long()].flatten(0, 1)  # (n·C, top, d)
        return squared_distances(self(rows).flatten(0, 1), named).view(codes.shape)

    def to(self, device: torch.device | str) -> Projection:
        moved = None if self.matrices is None else self.matrices.to(device)
        return Projection(self.kind, self.n_codebooks, self.key_dim, self.width, moved)
