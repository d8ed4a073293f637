"""From conditioned rows to the heads of C codebooks (section 2, step 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dkvb._support.validation import one_of
from dkvb.kernels.nearest import tree_sum

KINDS = ("gaussian", "partition", "identity")


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

    def rounding(self, rows: Tensor, moved: Tensor) -> Tensor:
        """How far, in norm, heads of rows (n, p) may lie from the exact ones (n, C), if the rows
        themselves lie up to `moved` (n,) away from theirs."""
        if self.matrices is None:
            return moved[:, None].expand(-1, self.n_codebooks)
        reach = 2.0**-52 * (self.width + 4) * rows.norm(dim=1) + moved  # (n,)
        bound: Tensor = reach[:, None] * self._norms
        return bound

    def to(self, device: torch.device | str) -> Projection:
        moved = None if self.matrices is None else self.matrices.to(device)
        return Projection(self.kind, self.n_codebooks, self.key_dim, self.width, moved)


def make_projection(
    kind: str, width: int, *, n_codebooks: int, key_dim: int | None, seed: int
) -> Projection:
    """A projection for rows of `width`; `key_dim` is needed for gaussian and follows otherwise.

    Gaussian matrices have columns of unit length, as in the paper's experiments.
    """
    one_of("projection", kind, KINDS)
    if kind == "gaussian":
        if key_dim is None:
            raise ValueError("key_dim: expected a whole number for projection='gaussian'; got None")
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(n_codebooks, width, key_dim, dtype=torch.float64, generator=generator)
        matrices = (normal / normal.norm(dim=1, keepdim=True)).float()
        return Projection(kind, n_codebooks, key_dim, width, matrices)
    if kind == "partition" and width % n_codebooks:
        raise ValueError(
            f"n_codebooks: expected a divisor of the width {width} for projection='partition'; "
            f"got {n_codebooks}; choose a divisor or projection='gaussian'"
        )
    natural = width // n_codebooks if kind == "partition" else width
    if key_dim not in (None, natural):
        raise ValueError(
            f"key_dim: expected {natural}, or None, for projection={kind!r} of width {width} into "
            f"{n_codebooks} codebooks; got {key_dim}"
        )
    return Projection(kind, n_codebooks, natural, width)
