"""From counts to scores: how likely each class is to have selected the pairs that a row selects.

score(y) = Σ_c log p(code_c | y), up to a constant of the row. A class with few rows has been seen
at few pairs, so p borrows from the clusters that a key lies in (`bottleneck.key_clusters`), small
ones first, which borrow from large ones, which borrow from all keys alike:

    p(k | y) = (n_k + a₀ p₁(k | y)) / (N + a₀)       n_k rows of y at key k, N rows of y in all
    p₁(k | y) = (n₁/s₁ + a₁ p₂(k | y)) / (N + a₁)    n₁ rows in the small cluster of k, of s₁ keys
    p₂(k | y) = (n₂/s₂ + a₂/K) / (N + a₂)            n₂ rows in the large cluster, of s₂ keys

where n₁/s₁ and n₂/s₂ are means over the partitions. It is linear in counts, so lists need not be
merged.

Scores of classes with many rows and of classes with few do not compare: the former's are lower at
keys they were never seen at, and higher at others. With `class_weight="balanced"` scores are
normalised per class, the more so the more the numbers of rows differ: see `class_balance`. Scores
of class means (`class_means`) are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb.bottleneck.heads import FixedPoint
from dkvb.kernels.counts import CLASS_STRIDE, Bounded, Known, backend, narrowed
from dkvb.rules.counts.class_means import ClassMeans
from dkvb.rules.counts.sparse import of_pairs, selected_pairs, whole
from dkvb.rules.counts.state import CountState

BORROWED = 0.5  # examples that a cluster borrows from the next larger one
SAMPLE = 4  # codebooks that the balance is measured in: they are alike
UNEVEN = 0.2  # variance of log N at which half of the normalisation is applied
SPREAD_POWER = 1.2  # wide scores are divided by a little more than their width
DENSE_ELEMENTS = 1 << 25  # pairs or scores of a chunk of rows
# Sums over C codebooks can be trusted as sums of so many independent ones, C to this power:
# codebooks agree with each other more than independent ones would.
INDEPENDENT = 0.65
FEW_ROWS = 64  # up to here, a search in several lists is quicker than merging them
MOST_KNOWN = 1 << 24  # likelihoods of pairs and classes that are kept for later rows: 128 MB


class Found(NamedTuple):
    """Lists of counts, the pairs (n, C) to read there, the clusters (R, pairs) of all pairs, and
    the share that a key has of each cluster: what `pool_logs` takes."""

    own: Bounded
    by_cluster: Bounded
    pairs: Tensor
    cells: Tensor
    shares: Tensor


@dataclass(frozen=True, eq=False)
class Posterior:
    """How log-likelihoods of counts become scores."""

    weights: Tensor  # (1 + R, Y) float64, what a row counted at each level adds to K · p(k | y)
    constant: Tensor  # (Y,) float64, and what is there without any
    n_codebooks: int
    shift: Tensor  # (Y,) float64, taken from log p(code | y) in each codebook
    scale: Tensor  # (Y,) float64, what divides the rest
    log_prior: Tensor  # (Y,) float64
    empty: Tensor  # (Y,) bool, classes without rows
    class_means: ClassMeans | None

    def scores(self, logs: Tensor, mean_scores: Tensor | None) -> Tensor:
        """Scores (n, Y) from log-likelihoods and the scores of class means, both (n, Y); −∞ for
        classes without rows."""
        scores = (logs - self.n_codebooks * self.shift) / self.scale + self.log_prior
        scores = scores if mean_scores is None else scores + mean_scores
        return scores.masked_fill(self.empty, -torch.inf)


def solve(
    state: CountState, space: FixedPoint | None, pseudocount: float, class_weight: str | None
) -> Posterior:
    """How a state's counts become scores; found once. `space` is that of the sums of embeddings.

    `pseudocount` is how many examples of each class a pair borrows. Without a class weight log N
    is added once, and scores are not normalised per class.
    """
    known: dict[object, Posterior] = vars(state).setdefault("_solutions", {})
    how, rows, balanced = (pseudocount, class_weight), state.per_class, class_weight is not None
    if how not in known:
        weights, constant = likelihood_weights(state, rows.double(), pseudocount)
        shift, scale = torch.zeros_like(constant), torch.ones_like(constant)
        log_prior = shift if balanced else torch.log(rows / rows.sum().double())
        if balanced:
            shift, scale = class_balance(state, weights, constant)
        means = None
        if space is not None and state.class_sums is not None:
            factor = state.n_codebooks**INDEPENDENT
            means = ClassMeans.fit(space, state.class_sums, rows, balanced, factor)
        parts = (state.n_codebooks, shift, scale, log_prior, rows == 0, means)
        known[how] = Posterior(weights, constant, *parts)
    return known[how]


def likelihood_weights(
    state: CountState, rows: Tensor, pseudocount: float
) -> tuple[Tensor, Tensor]:
    """What each row counted adds to K · p(k | y), by level (1 + R, Y), and what is there without
    any (Y,), for so many rows per class (Y,) float64: the formulas above, multiplied out."""
    K = state.smoothed_pairs
    own = pseudocount * K
    factor = K * own / (rows + own)  # (Y,) of p₁
    weights = [K / (rows + own)]
    if state.clusters is not None:
        partitions = len(state.clusters.of_key) // 2
        for sizes in (state.clusters.sizes[:partitions], state.clusters.sizes[partitions:]):
            borrowed = BORROWED * int((sizes[0, 0] > 0).sum())
            weights += [factor / (rows + borrowed) / partitions] * partitions
            factor = factor * borrowed / (rows + borrowed)
    return torch.stack(weights), factor / K


def class_balance(state: CountState, weights: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
    """How scores are normalised per class: shift and scale (Y,).

    From the mean m and the variance v of log p(k | y) over the keys k that rows select, whatever
    their class: m and v are near zero for a class of few rows, and neither for one of many.
    """
    rows = state.per_class.cpu().numpy()
    shift, scale, seen = np.zeros(len(rows)), np.ones(len(rows)), rows > 0
    log_rows = np.log(rows[seen])
    uneven = fmean((log_rows - fmean(log_rows)) ** 2) if seen.any() else 0.0
    strength = uneven / (uneven + UNEVEN)
    if strength > 0.01:  # else all classes stand alike
        mean, variance = _moments(state, weights, constant)
        # `fmean` gives the same whatever the order of classes.
        middle, width = mean[seen], np.log(np.maximum(variance[seen], np.finfo(float).tiny)) / 2
        shift[seen] = fmean(middle) + strength * (middle - fmean(middle))
        scale[seen] = np.exp(strength * SPREAD_POWER * (width - fmean(width)))
    device = state.per_class.device
    return torch.from_numpy(shift).to(device), torch.from_numpy(scale).to(device)


def _moments(
    state: CountState, weights: Tensor, constant: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance (Y,) of log p(k | y) over the keys that rows select, in a few codebooks.

    One codebook at a time, in place: its numbers stay in cache.
    """
    K, Y, books = state.n_pairs, len(constant), min(SAMPLE, state.n_codebooks)
    own_weight, *cluster_weights = weights.cpu().numpy()
    base, mean, variance = constant.cpu().numpy(), np.zeros(Y), np.zeros(Y)
    if state.clusters is not None:
        R, C, G = state.clusters.sizes.shape
        of_books = np.arange(books)[:, None] * G + np.arange(G)  # (books, G)
        cells = np.arange(R)[:, None, None] * C * G + of_books  # (R, books, G)
        added = of_pairs(state.by_cluster, cells, Y)  # (R, books, G, Y)
        shares = state.clusters.shares.cpu().numpy()[cells]
        cell_of = state.clusters.cells[:, : books * K].cpu().numpy().reshape(R, books, K)
    for book in range(books):
        pairs, counts = selected_pairs(state.tallies, book * K, K, Y)  # (k,), (k, Y)
        usage = counts.sum(axis=1)
        share = (usage / usage.sum())[:, None]  # (k, 1)
        logs = counts * own_weight
        logs += base
        for r, weight in enumerate(cluster_weights):
            table = weight * shares[r, book][:, None] * added[r, book]  # (G, Y)
            logs += table[cell_of[r, book, pairs] - cells[r, book, 0]]
        np.log(logs, out=logs)
        middle = (share * logs).sum(axis=0)
        mean += middle / books
        logs -= middle
        np.multiply(logs, logs, out=logs)
        logs *= share
        variance += logs.sum(axis=0) / books
    return mean, variance


# -------------------------------------------------------------------------------- reading counts
def log_likelihoods(state: CountState, codes: Tensor, solution: Posterior) -> Tensor:
    """Σ_c log p(code_c | y) + log K for codes (n, C): (n, Y) float64."""
    likelihood, few = (solution.weights, solution.constant), len(codes) <= FEW_ROWS
    pool_logs = backend(codes.device).pool_logs
    if few and "_indexed" not in vars(state) and len(state.tallies) > 1 and not codes.is_cuda:
        scores: Tensor = pool_logs(*excerpt(state, codes), *likelihood)
        return scores  # merging the lists would take longer
    found, logs, kept = indexed(state), [solution.weights[:0]], vars(solution)
    # Likelihoods of pairs are kept once more than a few rows have been scored.
    asked = kept["_asked"] = kept.get("_asked", 0) + len(codes)
    size = state.n_codebooks * state.n_pairs, len(solution.constant)
    fits = size[0] * size[1] <= MOST_KNOWN and not codes.is_cuda
    if "_known" not in kept and asked > FEW_ROWS and fits:
        factors = torch.from_numpy(np.empty(size))  # on huge pages, which torch does not ask for
        kept["_known"] = Known(factors, torch.zeros(size[0], dtype=torch.int8))
    for part in codes.split(max(1, DENSE_ELEMENTS // (state.n_codebooks + len(found.shares)))):
        read = found._replace(pairs=part.long() + found.pairs)
        logs.append(pool_logs(*read, *likelihood, kept.get("_known")))
    return logs[1] if len(logs) == 2 else torch.cat(logs)


def contributions(state: CountState, codes: Tensor, solution: Posterior) -> Tensor:
    """What each codebook adds to the scores of counts, for a few rows: (n, C, Y)."""
    found, C = excerpt(state, codes), state.n_codebooks
    # As if each codebook of each row were a row of its own.
    found = found._replace(pairs=found.pairs.view(-1, 1))
    logs = backend("cpu").pool_logs(*found, solution.weights.cpu(), solution.constant.cpu())
    logs = cast(Tensor, logs).view(*codes.shape, -1).to(codes.device)
    return (logs - solution.shift) / solution.scale + solution.log_prior / C


def votes(state: CountState, codes: Tensor) -> Tensor:
    """The mean over codebooks of counts: what the paper's SGD approaches, scaled: (n, Y)."""
    if len(codes) <= FEW_ROWS:
        return torch.from_numpy(read(state, codes).mean(axis=1)).to(codes.device)
    C, Y = state.n_codebooks, len(state.per_class)
    parts = codes.split(max(1, DENSE_ELEMENTS // (C + Y)))
    found, pool = indexed(state), backend(state.device).pool
    counts = [pool(found.own, part.long() + found.pairs, Y) for part in parts]
    return torch.cat(counts).double() / C


def read(state: CountState, codes: Tensor) -> NDArray[np.int64]:
    """The counts that a few rows with codes (n, C) find: (n, C, Y)."""
    first_pairs = np.arange(state.n_codebooks) * state.n_pairs
    pairs = codes.cpu().numpy().astype(np.int64) + first_pairs
    return of_pairs(state.tallies, pairs, len(state.per_class))


def excerpt(state: CountState, codes: Tensor) -> Found:
    """What the pairs and clusters of a few rows with codes (n, C) hold, as lists of their own; on
    the CPU."""
    own = read(state, codes)  # (n, C, Y)
    by_cluster, shares, partitions = own[:0], np.zeros(0), 0
    if state.clusters is not None:
        first_pairs = torch.arange(state.n_codebooks, device=codes.device) * state.n_pairs
        cells = state.clusters.cells[:, (codes.long() + first_pairs).flatten()]  # (R, n·C)
        numbers = cells.cpu().numpy().astype(np.int64)
        by_cluster = of_pairs(state.by_cluster, numbers, len(state.per_class))
        shares, partitions = state.clusters.shares.cpu().numpy()[numbers].ravel(), len(cells)
    pairs = torch.arange(codes.numel()).view(codes.shape)
    places = torch.arange(len(shares), dtype=torch.int32)
    places = places.view(partitions, codes.numel())  # (R, n·C)
    tables = _bounded_table(own), _bounded_table(by_cluster)
    return Found(*tables, pairs, places, torch.from_numpy(shares))


def indexed(state: CountState) -> Found:
    """All counts of keys and of clusters, and where the entries of each begin; `pairs` are the
    first of each codebook (C,). Found once."""
    known: Found | None = vars(state).get("_indexed")
    if known is None:
        device = state.per_class.device
        first_pairs = torch.arange(state.n_codebooks, device=device) * state.n_pairs
        cells, shares = first_pairs[None, :0].int(), first_pairs[:0].double()
        sizes = [(state.tallies, state.n_codebooks * state.n_pairs)]
        if state.clusters is not None:
            cells, shares = state.clusters.cells, state.clusters.shares
            sizes.append((state.by_cluster, state.clusters.sizes.numel()))
        found = []
        for lists, size in sizes:
            one = lists[0] if len(lists) == 1 else whole(lists)
            cell = torch.arange(size + 1, device=one.places.device)
            bounds = torch.searchsorted(one.places, cell * CLASS_STRIDE)
            found.append(Bounded(one.places, one.counts, bounds))
        known = vars(state)["_indexed"] = Found(found[0], found[-1], first_pairs, cells, shares)
    return known


def _bounded_table(table: NDArray[np.int64]) -> Bounded:
    """A table of counts (n, C, Y) as a list, every pair of every row being a pair."""
    table = table.reshape(-1, table.shape[2])
    pair, class_index = np.nonzero(table)
    bounds = np.searchsorted(pair, np.arange(len(table) + 1))
    places = torch.from_numpy(pair * CLASS_STRIDE + class_index)
    counts = narrowed(torch.from_numpy(table[pair, class_index]))
    return Bounded(places, counts, torch.from_numpy(bounds))
