"""How far scores can be trusted: rows that were kept, each scored as if it had not been learned."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.bottleneck import Keys
from dkvb.kernels.counts import CLASS_STRIDE
from dkvb.rules.calibration import PRIOR_WIDTH, fit_temperature
from dkvb.rules.counts.class_means import TEMPERATURE_WIDTH
from dkvb.rules.counts.posterior import (
    INDEPENDENT,
    Posterior,
    likelihood_weights,
    log_likelihoods,
    votes,
)
from dkvb.rules.counts.reconstruction import conditioned_rows
from dkvb.rules.counts.sparse import at
from dkvb.rules.counts.state import CountState, hash_factors

CALIBRATION_ROWS = 1000


class KeptRows(NamedTuple):
    """Distinct rows that were kept, of classes that have another row."""

    codes: Tensor  # (s, C)
    class_index: Tensor  # (s,)
    weights: Tensor  # (s,) float64, how many kept rows each stands for


def temperature_of_votes(state: CountState) -> float:
    """The temperature under which votes for kept rows, each left out, are calibrated."""
    rows = kept_rows(state, CALIBRATION_ROWS)
    scores = votes(state, rows.codes)
    scores[torch.arange(len(scores), device=scores.device), rows.class_index] -= 1.0
    return fit_temperature(scores, rows.class_index, 1.0, rows.weights)


def temperature_of_posterior(
    state: CountState, keys: Keys, solution: Posterior, pseudocount: float, class_weight: str | None
) -> float:
    """The temperature under which scores of kept rows, each left out, are calibrated."""
    rows = kept_rows(state, CALIBRATION_ROWS)
    logs = left_out_logs(state, rows, solution, pseudocount, class_weight)
    mean_scores, guess = None, state.n_codebooks**INDEPENDENT
    width, noise, means = PRIOR_WIDTH, 1.0, solution.class_means
    if means is not None:
        mean_scores = means.left_out(conditioned_rows(keys, rows.codes), rows.class_index)
        guess, width, noise = guess * means.temperature, TEMPERATURE_WIDTH, means.unseen_noise
    scores = solution.scores(logs, mean_scores)
    return noise * fit_temperature(scores, rows.class_index, guess / noise, rows.weights, width)


def left_out_logs(
    state: CountState,
    rows: KeptRows,
    solution: Posterior,
    pseudocount: float,
    class_weight: str | None,
) -> Tensor:
    """Log-likelihoods (s, Y) of kept rows, each by a model that never saw that row (but for the
    class balancing): exact, since a row's own counts can be taken away."""
    codes, class_index, C = rows.codes, rows.class_index, state.n_codebooks
    logs = log_likelihoods(state, codes, solution)
    fewer = state.per_class.double() - 1
    weights, constant = likelihood_weights(state, fewer, pseudocount)
    likelihood = constant[class_index, None].repeat(1, C)  # (s, C) of the own class
    pairs = codes.long() + torch.arange(C, device=codes.device) * state.n_pairs
    own = at(state.tallies, pairs * CLASS_STRIDE + class_index[:, None]) - 1
    likelihood += weights[0, class_index, None] * own
    if state.clusters is not None:
        cells = state.clusters.cells[:, pairs].long()  # (R, s, C)
        own = at(state.by_cluster, cells * CLASS_STRIDE + class_index[:, None]) - 1
        shared = state.clusters.shares[cells] * own
        likelihood += (weights[1:, class_index, None] * shared).sum(dim=0)
    place = torch.arange(len(codes), device=codes.device), class_index
    logs[place] = likelihood.log().sum(dim=1)
    if class_weight is None:  # the class is rarer without the row
        count = state.per_class.double()[class_index]
        logs[place] += torch.log((count - 1) / count)
    return logs


def kept_rows(state: CountState, most: int) -> KeptRows:
    """At most `most` distinct kept rows whose class has another row.

    Every class gives the same share of its kept rows, as far as the sketch gives them back, and its
    rows together stand for all that are kept of it. Class indices follow the order in which classes
    appeared, so they decide nothing: rows are ordered by the hash of their codes, classes by a hash
    of all their rows.
    """
    kept = state.kept
    factors = hash_factors(state.n_codebooks, state.device)
    rows, hashes = kept.rows(state.n_pairs, factors)
    others = state.per_class[rows.class_index] > 1
    pairs = torch.stack([rows.class_index, hashes], dim=1)[others]
    distinct, group = torch.unique(pairs, dim=0, return_inverse=True)  # sorted; all are distinct
    example = torch.empty_like(group)
    example[group] = torch.arange(len(pairs), device=pairs.device)
    codes, times = rows.codes[others], rows.times[others][example]
    of_class, weight = distinct[:, 0], times.double()
    zeros = torch.zeros(len(state.per_class), dtype=torch.float64, device=codes.device)
    every = zeros.index_add(0, kept.class_index, kept.times.double())  # (Y,)
    if len(distinct) > most:
        chosen = _evenly(distinct, times, every, most)
        example, of_class, weight = example[chosen], of_class[chosen], weight[chosen]
    taken = zeros.index_add(0, of_class, weight)
    return KeptRows(codes[example], of_class, weight * (every / taken)[of_class])


def _evenly(distinct: Tensor, times: Tensor, every: Tensor, most: int) -> Tensor:
    """Which (d,) bool of the distinct rows (class, hash) (d, 2), in ascending order, to take: at
    most `most`, of each class in proportion to the rows kept of it (Y,), as far as there are so
    many."""
    class_index, row_hash = distinct.T
    size = torch.bincount(class_index, minlength=len(every))  # (Y,)
    rank = torch.arange(len(distinct), device=distinct.device)
    rank = rank - (size.cumsum(0) - size)[class_index]
    content = torch.zeros_like(size).index_add(0, class_index, row_hash * times)  # wraps
    offset = (bits(4, content, 0, 0) >> 10).double() / (1 << 53)  # (Y,) in [0, 1)
    # Spread evenly over [0, 1) in each class; classes with the same kept rows tie, and those at the
    # limit are left out together.
    position = (rank + offset[class_index]) / every[class_index]  # (d,)
    return position < position.sort().values[most]
