"""What rule `counts` has counted, as an exported graph needs it: sparse, as it was learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb.bottleneck import Keys
from dkvb.kernels.counts import CLASS_STRIDE, Bounded
from dkvb.rules.counts.posterior import Posterior, indexed
from dkvb.rules.counts.state import CountState


@dataclass(frozen=True, eq=False)
class CountsView:
    """Counts for each searched key, and how they become scores: base + scale · Σ over codebooks of
    what is read."""

    keys: Keys  # the classifier's
    searched: Keys  # those that predictions search
    number: Tensor  # (C, K') of each searched key among all
    state: CountState
    solution: Posterior | None  # None: votes

    def linear(self, order: Tensor) -> tuple[Tensor, Tensor] | None:
        """Matrix (m, Y) and offsets (Y,) of what class means add to scores, classes in the order
        given (Y,); of rows that are conditioned but for the linear map."""
        if self.solution is None or self.solution.class_means is None:
            return None
        matrix, offset = self.solution.class_means.linear()
        return matrix.cpu()[:, order], offset.cpu()[order]

    def read(self, pairs: Tensor, order: Tensor) -> tuple[Counts, Tensor, Tensor]:
        """The counts of some pairs (T,), classes in the order given (Y,), with scale and base."""
        if self.solution is None:
            zero = torch.zeros(len(order), dtype=torch.float64)
            return votes_of(self.state, pairs, order), zero + 1 / self.state.n_codebooks, zero
        return posterior_of(self.state, pairs, order, self.solution)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """How counts become likelihoods, which a key borrows from the clusters it lies in: constant +
    Σ over levels (the key itself, then R partitions into clusters) of weight · share · count."""

    constant: Tensor  # (Y,) float64
    weights: Tensor  # (1 + R, Y) float64
    clusters: Tensor  # (R, T) small integers: the cluster of each key, in its codebook
    shares: Tensor  # (R, C, G) float64, what a key has of a row counted in its cluster

    @property
    def n_partitions(self) -> int:
        return self.clusters.shape[0]


@dataclass(frozen=True, eq=False)
class Counts:
    """For each cell the classes that selected it, and how often. Cells are the T keys, then the
    G clusters of each codebook in each partition. Summed over codebooks are logarithms of
    likelihoods, or the counts of keys themselves (`likelihood` None)."""

    bounds: Tensor  # (cells + 1,) where the entries of each cell begin
    columns: Tensor  # (E,) the smallest unsigned integers that can hold them
    counts: Tensor  # (E,) likewise
    likelihood: Likelihood | None


def votes_of(state: CountState, pairs: Tensor, order: Tensor) -> Counts:
    """The counts of some pairs (T,), classes in the order given (Y,)."""
    return _entries([(indexed(state).own, pairs)], order, None)


def posterior_of(
    state: CountState, pairs: Tensor, order: Tensor, solution: Posterior
) -> tuple[Counts, Tensor, Tensor]:
    """The same with clusters, and the scale and base (Y,) that lead from summed logarithms to
    scores."""
    own, by_cluster = indexed(state)[:2]
    C, lists = state.n_codebooks, [(own, pairs)]
    clusters = torch.zeros((0, len(pairs)), dtype=torch.int64)
    shares = torch.zeros((0, C, 0), dtype=torch.float64)
    if state.clusters is not None:
        R, _, G = state.clusters.sizes.shape
        lists.append((by_cluster, torch.arange(R * C * G, device=state.device)))
        clusters = state.clusters.of_key.reshape(R, -1)[:, pairs].cpu()
        shares = state.clusters.shares.view(R, C, G).cpu()
    weights, constant = solution.weights.cpu(), solution.constant.cpu()
    likelihood = Likelihood(constant[order], weights[:, order], narrow(clusters), shares)
    base = solution.log_prior - C * solution.shift / solution.scale
    base = base.masked_fill(solution.empty, -torch.inf).cpu()[order]
    return _entries(lists, order, likelihood), 1 / solution.scale.cpu()[order], base


def _entries(
    lists: list[tuple[Bounded, Tensor]], order: Tensor, likelihood: Likelihood | None
) -> Counts:
    """The entries of some cells of each list, one after another."""
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    lengths, columns, counts = [], [], []
    for found, cells in lists:
        low, length = found.bounds[cells], found.bounds[cells + 1] - found.bounds[cells]
        first = pad(length.cumsum(0), (1, 0))
        entry = torch.arange(int(first[-1]), device=cells.device)
        entry += torch.repeat_interleave(low - first[:-1], length)
        lengths.append(length.cpu())
        columns.append(rank[(found.places[entry] % CLASS_STRIDE).cpu()])
        counts.append(found.counts[entry].cpu())
    bounds = pad(torch.cat(lengths).cumsum(0), (1, 0))
    return Counts(narrow(bounds), narrow(torch.cat(columns)), narrow(torch.cat(counts)), likelihood)


def narrow(numbers: Tensor) -> Tensor:
    """Whole numbers from zero up in the smallest type that holds them."""
    most = int(numbers.max()) if numbers.numel() else 0
    if most < 1 << 8:
        return numbers.to(torch.uint8)
    if most < 1 << 16:
        return numbers.to(torch.uint16)
    return numbers.to(torch.int32 if most < 1 << 31 else torch.int64)
