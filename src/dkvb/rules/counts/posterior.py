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
normalised per class, the more so the more the numbers of rows differ: see `class_balance`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.kernels.counts import CLASS_STRIDE, Bounded, backend
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.sparse import code_hash
from dkvb.rules.counts.state import CountState

BORROWED = 0.5  # examples that a cluster borrows from the next larger one
SAMPLE = 4  # codebooks that the balance is measured in: they are alike
UNEVEN = 0.2  # variance of log N at which half of the normalisation is applied
SPREAD_POWER = 1.2  # wide scores are divided by a little more than their width
DENSE_ELEMENTS = 1 << 25  # pairs or scores of a chunk of rows


def scale_of(n_codebooks: int) -> float:
    """How far sums over codebooks can be trusted: as sums of so many independent ones. Codebooks
    agree with each other more than independent ones would."""
    return float(n_codebooks**0.65)


class Balance(NamedTuple):
    """What is taken from log p(code | y) in each codebook, and what divides the rest: (Y,)."""

    shift: Tensor
    scale: Tensor


def log_posterior(
    state: CountState, codes: Tensor, *, pseudocount: float, class_weight: str | None
) -> Tensor:
    """Scores (n, Y) of rows with codes (n, C), float64.

    `pseudocount` is how many examples of each class a pair borrows. Without a class weight
    log N is added once, and scores are not normalised per class.
    """
    return _balanced(state, _summed_logs(state, codes, pseudocount), pseudocount, class_weight)


def contributions(
    state: CountState, codes: Tensor, *, pseudocount: float, class_weight: str | None
) -> Tensor:
    """What each codebook adds to the scores of a few rows: (n, C, Y)."""
    shift, scale = class_balance(state, pseudocount, class_weight)
    lists, (pairs, clusters), shares = _excerpt(state, codes)
    # As if each codebook of each row were a row of its own.
    clusters = clusters.unflatten(1, (-1, state.n_codebooks)).transpose(1, 2).flatten(0, 1)
    weights, constant = (found.cpu() for found in _weights(state, pseudocount))
    logs: Tensor = backend("cpu").pool_logs(
        *lists, pairs.view(-1, 1), clusters, shares, weights, constant
    )
    logs = logs.view(*codes.shape, -1).to(codes.device)
    return (logs - shift) / scale + _log_prior(state, class_weight) / state.n_codebooks


class LeftOut(NamedTuple):
    """Rows scored by models that never saw them."""

    scores: Tensor  # (s, Y) float64
    columns: Tensor  # (s,) their labels
    weights: Tensor  # (s,) float64, how many kept rows each stands for
    codes: Tensor  # (s, C)


def leave_one_out(
    state: CountState,
    *,
    most: int,
    pseudocount: float,
    class_weight: str | None,
    pooling: str = "posterior",
) -> LeftOut:
    """At most `most` of the distinct kept rows, each scored by a model that never saw that row (but
    for the class balancing): exact, since a row's own counts can be taken away.

    Rows whose class has no other row say nothing and are left out. Which rows are taken depends on
    what was learned alone, not on the order of rows or classes.
    """
    codes, columns, times = _kept_rows(state, most)
    row = torch.arange(len(codes), device=codes.device)
    if pooling == "votes":
        scores = counts.votes(state, codes)
        scores[row, columns] -= 1.0
        return LeftOut(scores, columns, times, codes)
    scores = _summed_logs(state, codes, pseudocount)
    weights, constant = _weights(replace(state, per_class=state.per_class - 1), pseudocount)
    likelihood = constant[columns, None].repeat(1, state.n_codebooks)  # (s, C) of the own class
    pairs, clusters = _cells(state, codes)
    found = counts.at(state, pairs * CLASS_STRIDE + columns[:, None]) - 1
    likelihood += weights[0, columns, None] * found
    if state.clusters is not None and state.by_cluster is not None:
        found = counts.at(state.by_cluster, clusters * CLASS_STRIDE + columns[:, None]) - 1
        found = (state.clusters.shares[clusters] * found).unflatten(1, (-1, state.n_codebooks))
        likelihood += (weights[1:, columns].T[:, :, None] * found).sum(dim=1)
    scores[row, columns] = likelihood.log().sum(dim=1)
    scores = _balanced(state, scores, pseudocount, class_weight)
    if class_weight is None:
        rows = state.per_class.double()[columns]
        scores[row, columns] += torch.log((rows - 1) / rows)
    return LeftOut(scores, columns, times, codes)


def class_balance(state: CountState, pseudocount: float, class_weight: str | None) -> Balance:
    """How scores are normalised per class; found once for a state.

    From the mean m and the variance v of log p(k | y) over the keys k that rows select, whatever
    their class: m and v are near zero for a class of few rows, and neither for one of many.
    """
    if class_weight is None:
        zero = torch.zeros(len(state.per_class), dtype=torch.float64, device=state.device)
        return Balance(zero, zero + 1)
    known: dict[float, Balance] = vars(state).setdefault("_balances", {})
    if pseudocount in known:
        return known[pseudocount]
    rows = state.per_class.cpu().numpy()
    shift, scale = np.zeros(len(rows)), np.ones(len(rows))
    seen = rows > 0
    log_rows = np.log(rows[seen])
    uneven = _mean((log_rows - _mean(log_rows)) ** 2)
    strength = uneven / (uneven + UNEVEN)
    if strength > 0.01:  # else all classes stand alike
        mean, variance = np.zeros(len(rows)), np.zeros(len(rows))
        books = range(min(SAMPLE, state.n_codebooks))
        for book in books:
            one = counts.codebook(state, book)
            selected = torch.nonzero(one.usage[0])  # (k, 1)
            share = (one.usage[0, selected].double() / one.usage.sum()).cpu().numpy()  # (k, 1)
            logs = _summed_logs(one, selected, pseudocount).cpu().numpy()  # (k, Y)
            own = (share * logs).sum(axis=0)
            mean += own / len(books)
            variance += (share * (logs - own) ** 2).sum(axis=0) / len(books)
        middle = mean[seen]
        width = np.log(np.maximum(variance[seen], np.finfo(np.float64).tiny)) / 2
        shift[seen] = _mean(middle) + strength * (middle - _mean(middle))
        scale[seen] = np.exp(strength * SPREAD_POWER * (width - _mean(width)))
    return Balance(
        *(torch.from_numpy(found).to(state.per_class.device) for found in (shift, scale))
    )


def _mean(values: NDArray[np.float64]) -> float:
    """The mean over classes, the same whatever their order."""
    return math.fsum(values) / len(values) if len(values) else 0.0


def _balanced(
    state: CountState, logs: Tensor, pseudocount: float, class_weight: str | None
) -> Tensor:
    """Sums of logarithms (n, Y), normalised per class, with the prior."""
    shift, scale = class_balance(state, pseudocount, class_weight)
    scores = (logs - state.n_codebooks * shift) / scale
    return scores if class_weight == "balanced" else scores + _log_prior(state, class_weight)


def _log_prior(state: CountState, class_weight: str | None) -> Tensor:
    rows = state.per_class.double()
    return torch.log(rows / rows.sum()) if class_weight is None else torch.zeros_like(rows)


def _summed_logs(state: CountState, codes: Tensor, pseudocount: float) -> Tensor:
    """Σ_c log p(code_c | y) + log K for codes (n, C): (n, Y) float64."""
    Y, how = len(state.per_class), _weights(state, pseudocount)
    if len(state.tallies) > 1 and counts.read_apart(state, codes):
        lists, cells, shares = _excerpt(state, codes)
        few: Tensor = backend("cpu").pool_logs(*lists, *cells, shares, *how)
        return few
    by_cluster, shares = state, how[0][0, :0]
    if state.clusters is not None and state.by_cluster is not None:
        by_cluster, shares = state.by_cluster, state.clusters.shares
    parts = [torch.zeros((0, Y), dtype=torch.float64, device=codes.device)]
    for part in codes.split(max(1, DENSE_ELEMENTS // (5 * state.n_codebooks + Y))):
        pairs, clusters = _cells(state, part)
        found = state.bounded, by_cluster.bounded, pairs, clusters, shares
        parts.append(backend(codes.device).pool_logs(*found, *how))
    return torch.cat(parts)


def _cells(state: CountState, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs (n, C) of codes (n, C), and the clusters (n, R·C) of these, by partition."""
    book = torch.arange(state.n_codebooks, device=codes.device)
    pairs = codes.long() + book * state.n_pairs
    if state.clusters is None or state.by_cluster is None:
        return pairs, pairs[:, :0]
    clusters = counts.cluster_codes(state.clusters, codes).long()  # (n, R·C)
    book = torch.arange(clusters.shape[1], device=codes.device)
    return pairs, clusters + book * state.by_cluster.n_pairs


def _excerpt(
    state: CountState, codes: Tensor
) -> tuple[tuple[Bounded, Bounded], tuple[Tensor, Tensor], Tensor]:
    """For a few rows with codes (n, C), what their pairs and clusters hold, as lists of their own,
    the pairs (n, C) and clusters (n, R·C) there, and the latter's shares; all on the CPU."""
    own = counts.read(state, codes)  # (n, C, Y)
    by_cluster, shares = own[:, :0], np.zeros(0)
    if state.clusters is not None and state.by_cluster is not None:
        clusters = counts.cluster_codes(state.clusters, codes)  # (n, R·C)
        by_cluster = counts.read(state.by_cluster, clusters)
        first = np.arange(state.by_cluster.n_codebooks) * state.by_cluster.n_pairs
        shares = state.clusters.shares.cpu().numpy()[clusters.cpu().numpy() + first].ravel()
    n, C, _ = own.shape
    pairs = torch.arange(n * C).view(n, C)
    cells = torch.arange(n * by_cluster.shape[1]).view(n, by_cluster.shape[1])
    return (_bounded(own), _bounded(by_cluster)), (pairs, cells), torch.from_numpy(shares)


def _bounded(table: NDArray[np.int64]) -> Bounded:
    """A table of counts (n, C, Y) as a list, every pair of every row being a pair."""
    table = table.reshape(-1, table.shape[2])
    pair, column = np.nonzero(table)
    bounds = np.searchsorted(pair, np.arange(len(table) + 1))
    found = pair * CLASS_STRIDE + column, table[pair, column].astype(np.int32), bounds
    return Bounded(*map(torch.from_numpy, found))


def _weights(state: CountState, pseudocount: float) -> tuple[Tensor, Tensor]:
    """What each row counted adds to K · p(k | y), by level (1 + R, Y), and what is there without
    any (Y,): the formulas above, multiplied out."""
    N, K = state.per_class.double(), state.smoothed_pairs
    own = pseudocount * K
    factor = K * own / (N + own)  # (Y,) of p₁
    weights = [K / (N + own)]
    if state.clusters is not None:
        partitions = len(state.clusters.of_key) // 2
        for sizes in (state.clusters.sizes[:partitions], state.clusters.sizes[partitions:]):
            borrowed = BORROWED * int((sizes[0, 0] > 0).sum())
            weights += [factor / (N + borrowed) / partitions] * partitions
            factor = factor * borrowed / (N + borrowed)
    return torch.stack(weights), factor / K


def _kept_rows(state: CountState, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """At most `most` distinct kept rows whose class has another row: codes (s, C), labels (s,), and
    how many kept rows each stands for (s,) float64.

    Every class gives the same share of its distinct rows, and its rows together stand for all that
    are kept of it. Column numbers follow the order in which classes appeared, so they decide
    nothing: rows are ordered by the hash of their codes, classes by a hash of all their kept rows.
    """
    codes, columns = state.kept_codes, state.kept_columns
    others = state.per_class[columns] > 1
    codes, columns = codes[others], columns[others]
    pairs = torch.stack([columns, code_hash(codes)], dim=1)
    distinct, group, times = torch.unique(pairs, dim=0, return_inverse=True, return_counts=True)
    example = torch.empty_like(times)
    example[group] = torch.arange(len(pairs), device=pairs.device)  # any: their codes are equal
    column, weight = distinct[:, 0], times.double()
    if len(distinct) > most:
        chosen = _evenly(distinct, times, most)
        kept = torch.zeros(len(state.per_class), dtype=torch.float64, device=codes.device)
        kept = kept.index_add(0, column, weight)  # (Y,)
        taken = torch.zeros_like(kept).index_add(0, column[chosen], weight[chosen])
        weight = weight * (kept / taken)[column]
        example, column, weight = example[chosen], column[chosen], weight[chosen]
    return codes[example], column, weight


def _evenly(distinct: Tensor, times: Tensor, most: int) -> Tensor:
    """Which (d,) bool of the distinct rows (column, hash) (d, 2), in ascending order, to take: at
    most `most`, of each class the same share up to one row."""
    column, row_hash = distinct.T
    size = torch.bincount(column)  # (Y,)
    rank = torch.arange(len(column), device=column.device) - (size.cumsum(0) - size)[column]
    content = torch.zeros_like(size).index_add(0, column, row_hash * times)  # wraps
    offset = (bits(4, content, 0, 0) >> 10).double() / (1 << 53)  # (Y,) in [0, 1)
    place = (rank + offset[column]) / size[column]  # (d,), spread evenly over [0, 1) in each class
    # Classes with the same kept rows tie; those at the limit are left out together.
    return place < place.sort().values[most]
